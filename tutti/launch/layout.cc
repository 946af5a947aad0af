// torchrun's documentation multiplies the node rank by N, which is wrong as soon as two nodes differ; a running sum is
// always right.
#include "tutti/launch/layout.h"

#include <numeric>
#include <string>

#include "tutti/base/text.h"

namespace tutti::launch {
namespace {

Error bad_count(std::string_view part, std::string_view whole) {
  std::string detail = "-n needs a number of ranks, 1 or more, not '" + std::string(part) + "'";
  if (part != whole) detail += " (in '" + std::string(whole) + "')";
  return Error{
      .code = Code::kUsage,
      .detail = std::move(detail),
      .hint = "for example -n 4, -n auto for one rank per GPU or core, or -n 8,2 for two nodes of 8 and 2 ranks"};
}

Result<int> parse_count(std::string_view part, std::string_view whole) {
  const auto count = parse_int(trim(part));
  if (!count || *count < 1) return bad_count(trim(part), whole);
  if (*count > kMostRanksPerNode) {
    return Error{.code = Code::kUsage,
                 .detail = "-n " + std::to_string(*count) + " is more than the " + std::to_string(kMostRanksPerNode) +
                           " ranks that one node may run"};
  }
  return int(*count);
}

// The meaning of "auto", "cpu" or "gpu" on this machine; none for any other text.
Result<std::optional<int>> count_of_word(std::string_view text, MachineCounts machine) {
  if (text == "auto") return std::optional(machine.gpus > 0 ? machine.gpus : machine.cores);
  if (text == "cpu") return std::optional(machine.cores);
  if (text != "gpu") return std::optional<int>();
  if (machine.gpus > 0) return std::optional(machine.gpus);
  return Error{
      .code = Code::kUsage,
      .detail = "-n gpu, but no GPU is visible on this host",
      .hint = "nvidia-smi -L lists the GPUs; CUDA_VISIBLE_DEVICES and containers hide some; -n cpu counts cores"};
}

}  // namespace

Result<RankCounts> parse_rank_counts(std::string_view text, std::optional<int> nodes, int node, MachineCounts machine) {
  if (const auto counted = TUTTI_TRY(count_of_word(text, machine)))
    return RankCounts{.here = *counted, .all = nodes.value_or(1) == 1 ? std::vector{*counted} : std::vector<int>()};
  if (text.find(',') == std::string_view::npos) {
    const int here = TUTTI_TRY(parse_count(text, text));
    return RankCounts{.here = here, .all = nodes.value_or(1) == 1 ? std::vector{here} : std::vector<int>()};
  }
  RankCounts counts;
  for (const std::string& part : split(text, ',')) counts.all.push_back(TUTTI_TRY(parse_count(part, text)));
  if (nodes && *nodes != int(counts.all.size())) {
    return Error{.code = Code::kUsage,
                 .detail = "-n " + std::string(text) + " lists " + std::to_string(counts.all.size()) +
                           " nodes, but --nnodes is " + std::to_string(*nodes),
                 .hint = "give one number per node, or leave --nnodes out"};
  }
  if (node < 0) {
    return Error{.code = Code::kUsage,
                 .detail = "-n " + std::string(text) +
                           " lists the ranks of node 0, 1 and so on, but the nodes of an elastic job have no numbers",
                 .hint = "give each node its own -n, such as -n " + std::to_string(counts.all.front()) +
                         "; or number the nodes: --rdzv-backend static --node-rank R"};
  }
  if (node >= int(counts.all.size())) {
    return Error{.code = Code::kUsage,
                 .detail = "--node-rank " + std::to_string(node) + " is not one of the " +
                           std::to_string(counts.all.size()) + " nodes of -n " + std::string(text),
                 .hint = "nodes are numbered from 0"};
  }
  counts.here = counts.all[std::size_t(node)];
  return counts;
}

int Layout::world_size() const { return std::accumulate(counts.begin(), counts.end(), 0); }
int Layout::first_rank() const { return std::accumulate(counts.begin(), counts.begin() + node, 0); }

}  // namespace tutti::launch
