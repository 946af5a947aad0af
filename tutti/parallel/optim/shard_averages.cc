// One host: each rank takes its elements tile by tile. It averages a tile in the first-level cache, steps weights and
// state from there, and streams the new weights to the peers. With n ranks and Adam, an element of a rank's part costs
// 4 (2n + 5) bytes: n gradients, the weight and two states read, the states and n weights written. For n = 2 that is 18
// bytes a parameter and rank, where an all_reduce (8) and a step of all parameters (28) take 36.
//
// Clipping by norm and freeing gradients early take two passes: averages are kept, then stepped. The sum of squares and
// the check for NaN and infinity cost next to nothing, since the tile is in the cache.
//
// Several hosts, or memory that the peers cannot read: reduce_scatter of large gradients; all_reduce of their tails and
// of small gradients. Over links, a reduce_scatter adds an element in another order than an all_reduce does (each
// begins its sums where its parts begin). Two ranks give the same bits, since a + b is b + a. More ranks need the
// all_reduce of the unsharded run for its bits.
#include "tutti/parallel/optim/shard_averages.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "tutti/base/error.h"
#include "tutti/comm/kernels/copy.h"
#include "tutti/comm/peer_memory.h"
#include "tutti/parallel/gradients/average_tiles.h"
#include "tutti/parallel/gradients/tensor_math.h"

namespace tutti {
namespace {

std::byte* memory_of(const at::Tensor& values) { return static_cast<std::byte*>(values.data_ptr()); }
at::Tensor of_run(const at::Tensor& dense, const Run& run) {
  return in_order_of_memory(dense).narrow(0, run.begin, run.count);
}

TileSource source_of(const Shard& shard, std::span<std::byte* const> gradients, Run run) {
  return {.dtype = shard.dtype, .gradients = gradients, .begin = run.begin, .count = run.count};
}

// The sink that keeps averages. The sum of squares is the check.
SumOfSquares keep_run(const TileSource& source, const at::Tensor& averages, std::size_t number,
                      GradientFindings& findings) {
  auto* const into = memory_of(averages);
  struct Run {
    SumOfSquares squares;
    std::optional<int> non_finite;  // the rank
  };
  std::vector<Run> runs(std::size_t(source.runs()));
  average_in_tiles(source, [&](const AverageTile& tile) {
    Run& run = runs[std::size_t(tile.run)];
    const auto squares = squares_of_tile(tile.dtype, tile.average, std::size_t(tile.count));
    if (!squares.finite() && !run.non_finite)
      run.non_finite = rank_of_non_finite(tile.dtype, tile.gradients, 0, std::size_t(tile.count));
    run.squares += squares;
    std::memcpy(into + (tile.begin - source.begin) * std::int64_t(size_of(tile.dtype)), tile.average,
                std::size_t(tile.bytes()));
  });
  SumOfSquares total;
  for (const auto& run : runs) {
    if (run.non_finite) findings.note({number, *run.non_finite});
    total += run.squares;
  }
  return total;
}

// Decides where the averages go.
void place_averages(Shard& shard, AveragesIn where) {
  shard.averaged = true;
  const auto memory = [&](std::int64_t count) {
    return at::empty({count}, shard.weight.options().requires_grad(false));
  };
  if (where == AveragesIn::kOwn) {
    const at::Tensor both = memory(shard.mine.count + shard.tail.count);
    shard.mine_average = both.narrow(0, 0, shard.mine.count);
    shard.tail_average = both.narrow(0, shard.mine.count, shard.tail.count);
  } else {
    shard.mine_average = of_run(shard.gradient, shard.mine);
    shard.tail_average = memory(shard.tail.count);  // the peers read the gradient's tail too
  }
}

}  // namespace

PeerGradients::PeerGradients(const Group& group, std::span<Shard* const> shards) : ranks_(std::size_t(group.size())) {
  std::vector<std::span<std::byte>> buffers;
  for (const auto* shard : shards) buffers.push_back(host_bytes(shard->gradient));
  if (std::none_of(shards.begin(), shards.end(), [](auto* shard) { return shard->gradient.device().is_cpu(); })) {
    memory_.resize(shards.size() * ranks_);
    return;  // the exchange would wait for the averages before it
  }
  memory_ = peer_memory(group, buffers).or_throw();
}

std::span<std::byte* const> PeerGradients::of(std::size_t index) const {
  const auto* const places = memory_.data() + index * ranks_;
  return places[0] ? std::span(places, ranks_) : std::span<std::byte* const>();
}

bool PeerGradients::any() const {
  return std::any_of(memory_.begin(), memory_.end(), [](const auto* place) { return place != nullptr; });
}

void keep_averages(Shard& shard, std::span<std::byte* const> gradients, AveragesIn where, std::size_t number,
                   GradientFindings& findings) {
  place_averages(shard, where);
  const auto squares = keep_run(source_of(shard, gradients, shard.mine), shard.mine_average, number, findings);
  const auto of_tail = keep_run(source_of(shard, gradients, shard.tail), shard.tail_average, number, findings);
  if (!shard.counts) return;
  findings.squares += squares;
  findings.tail_squares += of_tail;
}

AverageByCollectives::AverageByCollectives(const Group& group, Shard& shard, AveragesIn where, AverageOf what,
                                           std::size_t number)
    : shard_(&shard),
      number_(number),
      what_(!shard.large && what == AverageOf::kPart ? AverageOf::kWholeAsDataParallel : what) {
  place_averages(shard, where);
  const at::Tensor gradient = in_order_of_memory(shard.gradient);
  if (what_ == AverageOf::kWholeAsDataParallel) works_.push_back(all_reduce_async(group, gradient, ReduceOp::kAvg));
  if (what_ != AverageOf::kPart) return;
  if (shard.mine.count > 0)
    works_.push_back(reduce_scatter_async(group, gradient.narrow(0, 0, shard.mine.count * group.size()),
                                          shard.mine_average, ReduceOp::kAvg));
  if (shard.tail.count == 0) return;
  shard.tail_average.copy_(of_run(gradient, shard.tail));
  works_.push_back(all_reduce_async(group, shard.tail_average, ReduceOp::kAvg));
}

void AverageByCollectives::end(GradientFindings& findings) {
  for (const auto& work : works_) work.get_on_stream();
  const Shard& shard = *shard_;
  const auto keep = [&](const Run& run, const at::Tensor& average, SumOfSquares GradientFindings::*squares) {
    const at::Tensor from = of_run(shard.gradient, run);
    if (what_ != AverageOf::kPart && from.data_ptr() != average.data_ptr()) average.copy_(from);
    findings.add(average, {number_, NonFinite::kUnknownRank}, shard.counts ? squares : nullptr);
  };
  keep(shard.mine, shard.mine_average, &GradientFindings::squares);
  keep(shard.tail, shard.tail_average, &GradientFindings::tail_squares);
}

namespace {

// The sink that steps. `state`: the first element of the run's state.
class StepRun {
 public:
  StepRun(const Group& group, Shard& shard, const Update& update) : group_(group), shard_(shard), update_(update) {}
  void step(std::int64_t element, std::int64_t state, const void* average, std::int64_t count, bool to_peers) const {
    const std::int64_t at = element * shard_.element_bytes(), bytes = count * shard_.element_bytes();
    std::byte* const weight = shard_.weight_at(0) + at;
    apply_update(update_, shard_.dtype, weight, average, StatePointers(shard_.state.tensors, state).at,
                 std::size_t(count));
    if (!to_peers) return;
    for (std::size_t r = 0; r < shard_.weights.size(); ++r)
      if (int(r) != group_.rank()) comm::stream_bytes(shard_.weights[r] + at, weight, std::size_t(bytes));
  }

 private:
  const Group& group_;
  Shard& shard_;
  const Update& update_;
};

// No rank reaches a peer's weights here.
void step_on_device(Shard& shard, const Update& update) {
  const auto step = [&](const Run& run, std::int64_t state, const at::Tensor& average) {
    if (run.count == 0) return;
    std::vector<at::Tensor> states;
    for (const at::Tensor& tensor : shard.state.tensors) states.push_back(tensor.narrow(0, state, run.count));
    update_tensor(update, of_run(shard.weight, run), average, states);
  };
  step(shard.mine, 0, shard.mine_average);
  step(shard.tail, shard.mine.count, shard.tail_average);
}

}  // namespace

void average_and_step(const Group& group, Shard& shard, std::span<std::byte* const> gradients, const Update& update,
                      const StepCheck& step_check) {
  const StepRun sink(group, shard, update);
  const auto note = [&](const AverageTile& tile) {
    step_check.findings->note(
        {step_check.number, rank_of_non_finite(tile.dtype, tile.gradients, 0, std::size_t(tile.count))});
  };
  TileCheck check(step_check.findings != nullptr, note);
  const auto step_run = [&](Run run, std::int64_t state, bool to_peers) {
    average_in_tiles(source_of(shard, gradients, run), [&](const AverageTile& tile) {
      if (check.passes(tile)) sink.step(tile.begin, state + tile.begin - run.begin, tile.average, tile.count, to_peers);
    });
    comm::fence_streams();
  };
  step_run(shard.mine, 0, true);
  step_run(shard.tail, shard.mine.count, false);
}

void step_averaged(const Group& group, Shard& shard, const Update& update, const StepCheck& step_check) {
  if (!shard.weight.device().is_cpu()) return step_on_device(shard, update);
  const StepRun sink(group, shard, update);
  const auto note = [&](const AverageTile&) {
    step_check.findings->note({step_check.number, NonFinite::kUnknownRank});
  };
  TileCheck check(step_check.findings != nullptr, note);
  const std::int64_t size = shard.element_bytes(), tile = kTileBytes / size;
  const std::byte* const averages = memory_of(shard.mine_average);
  at::parallel_for(0, shard.mine.count, kUpdateGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += tile) {
      const std::int64_t count = std::min(tile, end - i);
      const std::byte* const average = averages + i * size;
      if (check.passes({.dtype = shard.dtype, .count = count, .average = average}))
        sink.step(shard.mine.begin + i, i, average, count, true);
    }
    comm::fence_streams();
  });
  const std::byte* const of_tail = memory_of(shard.tail_average);
  if (!check.passes({.dtype = shard.dtype, .count = shard.tail.count, .average = of_tail})) return;
  update_elements(update, shard.dtype, shard.weight_at(shard.tail.begin), of_tail, shard.state.tensors,
                  shard.mine.count, shard.tail.count);
}

}  // namespace tutti
