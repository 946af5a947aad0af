#pragma once
// Slurm's short forms for hosts and counts, as they stand in SLURM_JOB_NODELIST and SLURM_TASKS_PER_NODE.
//   list  := item { "," item }
//   item  := { text | "[" range { "," range } "]" }      several brackets multiply: r[0-1]n[0-1] is four hosts
//   range := digits [ "-" digits ]                       zero padding is kept: [08-11] is 08 09 10 11
//   counts := count { "," count },  count := digits [ "(x" digits ")" ]
// The text comes from the environment, so nothing in it is trusted: what is unbalanced, reversed or expands to more
// than the limit is a kUsage error that shows the place.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

inline constexpr std::size_t kMaxHosts = 65536;

// "a[1-2],b3" -> a1 a2 b3
Result<std::vector<std::string>> expand_hostlist(std::string_view text, std::size_t limit = kMaxHosts);
// "2(x3),1" -> 2 2 2 1
Result<std::vector<int>> expand_counts(std::string_view text, std::size_t limit = kMaxHosts);

}  // namespace tutti
