#pragma once
// Options that several commands of `tutti plan` have: --hosts, and --svg.
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::cli {

inline constexpr int kMostPlannedRanks = 1 << 20;

// The ranks of each host. "8,8,2" says them itself; "4" divides `ranks` evenly, the first hosts having one more where
// that leaves a rest. Empty `hosts`: each rank has a host of its own. kUsage: the ranks contradict each other, or
// "8,8,2" is missing and `ranks` as well.
Result<std::vector<int>> planned_host_sizes(std::optional<int> ranks, const std::string& hosts,
                                            const std::string& synopsis, const std::string& example);

// Writes the drawing of --svg, and says so on standard error.
Status write_picture(const std::string& path, const std::string& svg);

}  // namespace tutti::cli
