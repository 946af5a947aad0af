// 1F1B over virtual stages. Microbatches pass in groups of N: a group goes through the rank's first chunk, then through
// the second, and so on, before the next group comes. The order of (microbatch, chunk) that this gives is the table;
// the k-th forward is its k-th line, the k-th backward the same line with the chunks counted from the end. The bubble
// is (p-1)/(m v) of the work, v chunks a rank, for v times the messages and a little more memory.
//
// Megatron-LM refuses a number of microbatches that N does not divide with a rest below p: its rule of who is ahead of
// whom would let ranks wait for one another for ever. Here the microbatches are then dealt out to as many groups as
// before, as evenly as can be, the larger ones first. So any number will do, and the bubble stays that of the formula.
#include <algorithm>

#include "tutti/planning/schedules/schedule.h"

namespace tutti {

namespace {

std::vector<int> group_sizes(const PipelineShape& shape) {
  const int total = shape.microbatches, size = shape.microbatch_group > 0 ? shape.microbatch_group : shape.ranks;
  const int rest = total % size, whole = total / size;
  if (rest == 0) return std::vector<int>(std::size_t(whole), size);
  std::vector<int> sizes;
  if (rest >= shape.ranks) {  // a group like the others
    sizes.assign(std::size_t(whole), size);
    sizes.push_back(rest);
    return sizes;
  }
  const int groups = std::max(whole, 1);
  for (int i = 0; i < groups; ++i) sizes.push_back(total / groups + (i < total % groups ? 1 : 0));
  return sizes;
}

}  // namespace

std::vector<Action> interleaved(const PipelineShape& shape, int rank) {
  const int chunks = shape.chunks;
  const std::vector<int> groups = group_sizes(shape);
  std::vector<std::pair<int, int>> table;  // microbatch, chunk
  for (int first = 0; const int size : groups) {
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int i = first; i < first + size; ++i) table.emplace_back(i, chunk);
    first += size;
  }
  const int total = int(table.size());
  const int warm_up = std::min((shape.ranks - rank - 1) * 2 + (chunks - 1) * groups[0], total);
  std::vector<Action> actions;
  const auto forward = [&](int k) { actions.push_back({ActionKind::kForward, table[k].first, table[k].second}); };
  for (int k = 0; k < warm_up; ++k) forward(k);
  for (int k = 0; k < total; ++k) {
    if (warm_up + k < total) forward(warm_up + k);
    actions.push_back({ActionKind::kBackward, table[k].first, chunks - 1 - table[k].second});
  }
  return actions;
}

}  // namespace tutti
