#pragma once
// Options that exclude each other, as a table. Each set of options (of DataParallel, of a trainer) has one such table.
// One test tries every pair of its options: a pair either works or is in the table.
#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "tutti/base/error.h"

namespace tutti {

// Two options that exclude each other, by name, and what to do instead.
struct ExcludedPair {
  std::string_view one, other, hint;
};

// An option by its name in messages, and whether it is given.
template <class Options>
struct NamedOption {
  std::string_view name;
  bool (*is_given)(const Options&);
};

// Rejects the first pair whose options are both given (kUsage). `is_given` returns by name whether an option is given.
// The message omits the bracketed part of a name, such as a default.
template <class IsGiven>
Status check_pairs(std::span<const ExcludedPair> pairs, const IsGiven& is_given) {
  const auto found = std::find_if(pairs.begin(), pairs.end(),
                                  [&](const auto& pair) { return is_given(pair.one) && is_given(pair.other); });
  if (found == pairs.end()) return {};
  const auto option = [](std::string_view name) { return std::string(name.substr(0, name.find(" ("))); };
  return Error{.code = Code::kUsage,
               .detail = detail::words(option(found->one), " and ", option(found->other), " were both given"),
               .hint = std::string(found->hint)};
}

// check_pairs() with a table of options. An option that is not in the table counts as not given.
template <class Options>
Status check_pairs(std::span<const ExcludedPair> pairs, std::span<const NamedOption<Options>> options,
                   const Options& given) {
  return check_pairs(pairs, [&](std::string_view name) {
    return std::any_of(options.begin(), options.end(),
                       [&](const auto& option) { return option.name == name && option.is_given(given); });
  });
}

}  // namespace tutti
