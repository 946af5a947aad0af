#include "tutti/tensor/module_names.h"

#include <algorithm>

#include "tutti/base/text.h"

namespace tutti {

bool name_fits(std::string_view pattern, std::string_view name) {
  const auto wanted = split(pattern, '.'), given = split(name, '.');
  return std::equal(wanted.begin(), wanted.end(), given.begin(), given.end(),
                    [](const auto& part, const auto& of_name) { return part == "*" || part == of_name; });
}

}  // namespace tutti
