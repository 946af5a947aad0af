#pragma once
// Options that exclude each other, as a table. A set of options (of DataParallel, of a trainer) has one such table, and
// one test tries every pair of its options: a pair works, or the table has it.
#include <algorithm>
#include <span>
#include <string_view>

namespace tutti {

// Two options that cannot be given together, by name, and what to do instead.
struct ExcludedPair {
  std::string_view one, other, hint;
};

// An option by the name that messages use, and whether it is given.
template <class Options>
struct NamedOption {
  std::string_view name;
  bool (*is_given)(const Options&);
};

// The first pair of the table of which both options are given; null if there is none. A name in `pairs` that is not in
// `options` is never given.
template <class Options>
const ExcludedPair* find_excluded(std::span<const ExcludedPair> pairs, std::span<const NamedOption<Options>> options,
                                  const Options& given) {
  const auto has = [&](std::string_view name) {
    return std::any_of(options.begin(), options.end(),
                       [&](const auto& option) { return option.name == name && option.is_given(given); });
  };
  const auto found =
      std::find_if(pairs.begin(), pairs.end(), [&](const auto& pair) { return has(pair.one) && has(pair.other); });
  return found == pairs.end() ? nullptr : &*found;
}

}  // namespace tutti
