#include "apps/tutti/plan_shared.h"

#include <cstdio>

#include "apps/options/command_line.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"

namespace tutti::cli {

Result<std::vector<int>> planned_host_sizes(std::optional<int> ranks, const std::string& hosts,
                                            const std::string& synopsis, const std::string& example) {
  std::vector<int> sizes;
  if (hosts.find(',') != std::string::npos) {
    std::int64_t sum = 0;
    for (const std::string& part : split(hosts, ',')) {
      sizes.push_back(int(TUTTI_TRY(whole_number("each part of --hosts", part, 1, kMostPlannedRanks))));
      sum += sizes.back();
    }
    if (sum > kMostPlannedRanks)
      return usage("--hosts " + hosts + " are more than " + std::to_string(kMostPlannedRanks) + " ranks");
    if (ranks && sum != *ranks)
      return usage(
          "--hosts " + hosts + " are " + std::to_string(sum) + " ranks, but --ranks is " + std::to_string(*ranks),
          "drop --ranks");
    return sizes;
  }
  if (!ranks) return not_given("--ranks", synopsis, example);
  if (hosts.empty()) return std::vector<int>(std::size_t(*ranks), 1);
  const int count = int(TUTTI_TRY(whole_number("--hosts", hosts, 1, kMostPlannedRanks)));
  if (count > *ranks) return usage("--hosts " + hosts + " are more than the " + std::to_string(*ranks) + " ranks");
  for (int host = 0; host < count; ++host) sizes.push_back(*ranks / count + (host < *ranks % count ? 1 : 0));
  return sizes;
}

Status write_picture(const std::string& path, const std::string& svg) {
  TUTTI_TRY(write_file(path, svg));
  std::fprintf(stderr, "the picture is in %s\n", path.c_str());
  return {};
}

}  // namespace tutti::cli
