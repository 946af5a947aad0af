#include "tutti/base/gpus.h"

#include <glob.h>

#include "tutti/base/text.h"

namespace tutti {

std::vector<std::string> visible_gpus(const Environment& environment, const std::string& devices) {
  std::vector<std::string> gpus;
  if (const auto listed = environment.find("CUDA_VISIBLE_DEVICES"); listed != environment.end()) {
    for (const std::string& entry : split(listed->second, ',')) {
      const std::string_view name = trim(entry);
      if (name.empty() || name.starts_with('-')) break;  // CUDA reads no further than the first that makes no sense
      gpus.emplace_back(name);
    }
    return gpus;
  }
  glob_t found{};
  const std::size_t count = ::glob((devices + "/nvidia[0-9]*").c_str(), 0, nullptr, &found) == 0 ? found.gl_pathc : 0;
  ::globfree(&found);
  for (std::size_t i = 0; i < count; ++i) gpus.push_back(std::to_string(i));
  return gpus;
}

}  // namespace tutti
