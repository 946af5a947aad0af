// DataParallelOptions::static_graph: the first step shows how often each gradient comes.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tutti/comm/collectives.h"
#include "tutti/parallel/data_parallel/reducer/features/features.h"

namespace tutti {
namespace {

class StaticGraph final : public ReducerFeature {
 public:
  explicit StaticGraph(State& core) TUTTI_REQUIRES(core.mutex) { core.arrivals->start_learning(); }

  // Each gradient must have come equally often on every rank that had data.
  void end_step(State& core, const std::vector<std::uint8_t>&, Give give) override TUTTI_REQUIRES(core.mutex) {
    if (!core.arrivals->learning()) return;
    constexpr auto kAny = std::numeric_limits<std::int64_t>::max();
    auto least = core.arrivals->counts(), most = least;
    if (give == Give::kZeros) std::fill(least.begin(), least.end(), kAny);
    all_reduce(core.group, std::span(least), ReduceOp::kMin);
    all_reduce(core.group, std::span(most), ReduceOp::kMax);
    for (std::size_t i = 0; i < core.parameters.size(); ++i)
      if (least[i] != most[i]) reject_differing_graphs(core, i, give);
    core.arrivals->learn(most);
    for (const auto index : core.numbers_of(Route::kDelayed)) core.arrivals->skip(index);
  }

 private:
  // Every rank calls.
  [[noreturn]] static void reject_differing_graphs(State& core, std::size_t index, Give give)
      TUTTI_REQUIRES(core.mutex) {
    constexpr std::int64_t kHadNoData = -1;
    const std::int64_t mine = give == Give::kZeros ? kHadNoData : core.arrivals->arrived(index);
    std::vector<std::int64_t> counts(std::size_t(core.group.size()));
    all_gather(core.group, std::span(&mine, 1), std::span(counts));
    const auto first = std::find_if(counts.begin(), counts.end(), [](auto count) { return count != kHadNoData; });
    const auto other =
        std::find_if(first, counts.end(), [&](auto count) { return count != kHadNoData && count != *first; });
    TUTTI_INVARIANT(other != counts.end(), "the gradient of ", core.parameters[index].name,
                    " came equally often everywhere");
    Error error = core.mistake(
        fmt::format("the gradient of {} came {} on rank {}, but {} on rank {}", core.parameters[index].name,
                    times(*first), first - counts.begin(), times(*other), other - counts.begin()),
        "static_graph promises the same on every rank; without it, set find_unused_parameters");
    error.code = Code::kMismatch;
    throw Exception(error);
  }
};

}  // namespace

std::unique_ptr<ReducerFeature> static_graph_feature(Reducer::State& core) {
  return std::make_unique<StaticGraph>(core);
}

}  // namespace tutti
