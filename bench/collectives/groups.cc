#include "bench/collectives/groups.h"

#include <set>

#include "tutti/base/text.h"

namespace tutti::bench {
namespace {

constexpr const char* kHint = "world, halves, pairs, even_odd, or lists of ranks such as 0,2/1,3";

Error cannot(const std::string& detail) { return {.code = Code::kUsage, .detail = detail, .hint = kHint}; }

// Runs of `size` ranks that are `step` apart.
Result<std::vector<std::vector<int>>> runs(const std::string& text, int ranks, int groups, bool neighbours) {
  if (groups == 0 || ranks % groups != 0)
    return cannot("--groups " + text + " cannot divide " + std::to_string(ranks) + " ranks evenly");
  std::vector<std::vector<int>> lists;
  lists.resize(std::size_t(groups));
  for (int rank = 0; rank < ranks; ++rank)
    lists[std::size_t(neighbours ? rank / (ranks / groups) : rank % groups)].push_back(rank);
  return lists;
}

}  // namespace

Result<std::vector<std::vector<int>>> groups_of(const std::string& text, int ranks) {
  if (text == "world") return runs(text, ranks, 1, true);
  if (text == "halves") return runs(text, ranks, 2, true);
  if (text == "even_odd") return runs(text, ranks, 2, false);
  if (text == "pairs") return ranks % 2 ? runs(text, ranks, 0, true) : runs(text, ranks, ranks / 2, true);
  std::vector<std::vector<int>> lists;
  std::set<int> seen;
  for (const std::string& part : split(text, '/')) {
    lists.emplace_back();
    for (const std::string& word : split(part, ',')) {
      const auto rank = parse_int(word);
      if (!rank) return cannot("--groups: '" + word + "' is no rank");
      if (*rank < 0 || *rank >= ranks)
        return cannot("--groups names rank " + word + ", but there are " + std::to_string(ranks) + " ranks");
      if (!seen.insert(int(*rank)).second) return cannot("--groups names rank " + word + " twice");
      lists.back().push_back(int(*rank));
    }
  }
  if (!seen.contains(0)) return cannot("--groups leaves out rank 0, which prints the figures");
  return lists;
}

}  // namespace tutti::bench
