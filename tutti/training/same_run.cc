// Every rank gathers the texts of all ranks, so all ranks end with the same sentence, and none waits for one that has
// left.
#include "tutti/training/same_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "tutti/base/text.h"
#include "tutti/checkpoint/format/value_tree.h"
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

std::string text_of(const CheckpointValue& value, const std::vector<const char*>& kinds) {
  if (const auto* const text = std::get_if<std::string>(&value)) return *text;
  const auto* const number = std::get_if<std::int64_t>(&value);
  if (number && *number >= 0 && *number < std::ssize(kinds)) return kinds[std::size_t(*number)];
  return to_string(value);
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

Status check_same_run(const CheckpointReader& saved, const CheckpointValues& there,
                      const std::vector<RunValue>& values) {
  for (const RunValue& value : values) {
    const auto found = there.find(value.name);
    const bool absent = found == there.end();
    if (absent ? value.may_lack : found->second == value.given) continue;
    const std::string why = absent
                                ? fmt::format("it does not say with which {} it was saved", value.option)
                                : fmt::format("it was saved with {} {}, and {} is given", value.option,
                                              text_of(found->second, value.kinds), text_of(value.given, value.kinds));
    return Error{.code = Code::kMismatch,
                 .detail = fmt::format("the checkpoint {} is of another run: {}", saved.folder(), why),
                 .hint = fmt::format("give the {} of the run that saved it, or save to another folder", value.option)};
  }
  return {};
}

}  // namespace tutti
