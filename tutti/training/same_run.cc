// Every rank gathers the texts of all, so every rank ends with the same sentence and nobody waits for one that left.
#include "tutti/training/same_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"

namespace tutti {
namespace {

std::vector<std::string> gather_texts(const Group& world, std::string mine) {
  const auto longest = std::size_t(all_reduce(world, std::int64_t(mine.size()), ReduceOp::kMax));
  mine.resize(longest, '\0');
  const std::vector<std::uint8_t> in(mine.begin(), mine.end());
  std::vector<std::uint8_t> out(longest * std::size_t(world.size()));
  all_gather(world, std::span<const std::uint8_t>(in), std::span<std::uint8_t>(out));
  std::vector<std::string> texts;
  for (std::size_t begin = 0; texts.size() < std::size_t(world.size()); begin += longest) {
    texts.emplace_back(out.begin() + long(begin), out.begin() + long(begin + longest));
    texts.back().resize(std::min(texts.back().find('\0'), longest));
  }
  return texts;
}

}  // namespace

Status check_same_options(const Group& world, const std::vector<std::pair<std::string, std::string>>& options) {
  std::vector<std::string> mine;
  for (const auto& [name, value] : options) mine.push_back(value);
  const auto texts = gather_texts(world, join(mine, "\n"));
  const auto first = split(texts[0], '\n');
  for (std::size_t option = 0; option < options.size() && option < first.size(); ++option) {
    std::vector<int> others;
    std::string other_value;
    for (int rank = 1; rank < world.size(); ++rank) {
      const auto values = split(texts[std::size_t(rank)], '\n');
      const std::string value = option < values.size() ? values[option] : "nothing";
      if (value == first[option] || (!others.empty() && value != other_value)) continue;
      others.push_back(rank);
      other_value = value;
    }
    if (others.empty()) continue;
    return Error{.code = Code::kMismatch,
                 .detail = fmt::format("{} is {} on rank 0, but {} on {} {}", options[option].first, first[option],
                                       other_value, others.size() == 1 ? "rank" : "ranks", ranks_text(others)),
                 .hint = "start all ranks with the same options, and with the same data"};
  }
  return {};
}

}  // namespace tutti
