// One host. Each rank takes its elements tile by tile: adds the gradients of all ranks, in rank order, into a tile in
// the first-level cache, steps weights and state from there, and streams the new weights to the peers. Per element of a
// part with Adam: n gradients, weight and two states read, states and n weights written, 4 (2n + 5) bytes; for a rank,
// with n = 2, 18 a parameter where an all_reduce (8) and a step of its own (28) take 36.
//
// Where somebody wants the norm first, or gradients are to be let go of, averaging and stepping are two passes; the sum
// of squares then costs nothing, since the tile is in the cache. Nor does a look at it for NaN and infinity in the pass
// that steps. A sum that is not finite is looked into at once, while the gradients of all ranks are there, so that the
// rank can be named.
//
// Several hosts, or memory that the peers cannot see: reduce_scatter of the gradient; the tail, and small gradients
// whole, are all-reduced. Where plans run over links, an element of a reduce_scatter is added in another order than the
// same element of an all_reduce (each begins its sums where its parts begin), which for two ranks makes no difference,
// a + b being b + a. For more, who wants the bits of an unsharded run has to make the all_reduce that it makes.
#include "tutti/parallel/gradients/averages.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tutti/base/error.h"
#include "tutti/base/mutex.h"
#include "tutti/comm/kernels/copy.h"
#include "tutti/comm/kernels/finite.h"
#include "tutti/comm/kernels/reduce.h"
#include "tutti/comm/peer_memory.h"
#include "tutti/parallel/gradients/clip.h"

namespace tutti {
namespace {

// With the weights and states that it goes with, within the first-level cache.
constexpr std::int64_t kTileBytes = 8 << 10;

// A run of elements in the gradients of all ranks.
struct Source {
  DType dtype;
  std::vector<const void*> gradients;  // where the run begins
  std::int64_t count;
  std::int64_t size;  // of an element
};

Source source_of(const Shard& shard, std::span<std::byte* const> gradients, Run run) {
  Source source{.dtype = shard.dtype, .gradients = {}, .count = run.count, .size = shard.element_bytes()};
  for (const auto* gradient : gradients) source.gradients.push_back(gradient + run.begin * source.size);
  return source;
}

// use(run of kUpdateGrain elements, place, average, count) for each tile; runs are dealt out to threads whole.
template <class Use>
void for_tiles(const Source& source, const Use& use) {
  const std::int64_t tile = kTileBytes / source.size;
  at::parallel_for(0, (source.count + kUpdateGrain - 1) / kUpdateGrain, 1, [&](std::int64_t first, std::int64_t last) {
    alignas(64) std::byte average[kTileBytes];
    void* const out[] = {average};
    std::vector<const void*> gradients(source.gradients.size());
    for (std::int64_t run = first; run < last; ++run) {
      const std::int64_t end = std::min(source.count, (run + 1) * kUpdateGrain);
      for (std::int64_t i = run * kUpdateGrain; i < end; i += tile) {
        const std::int64_t count = std::min(tile, end - i);
        for (std::size_t r = 0; r < gradients.size(); ++r)
          gradients[r] = static_cast<const std::byte*>(source.gradients[r]) + i * source.size;
        reduce_many(source.dtype, ReduceOp::kAvg, gradients, out, std::size_t(count), int(gradients.size()));
        use(run, i, average, gradients, count);
      }
    }
  });
}

// The lowest rank whose elements are not finite; -1: of none, then the sum of them is not.
int rank_to_blame(const std::vector<const void*>& gradients, DType dtype, std::int64_t count) {
  for (std::size_t r = 0; r < gradients.size(); ++r)
    if (!std::isfinite(sum_of_squares(dtype, gradients[r], std::size_t(count)))) return int(r);
  return -1;
}

// A rank that is known is better than none.
void blame(AverageFacts& facts, std::int64_t number, std::int64_t rank) {
  if (facts.shard >= 0 && facts.shard < number) return;
  if (facts.shard == number && facts.rank >= 0 && (rank < 0 || facts.rank <= rank)) return;
  facts.shard = number;
  facts.rank = rank;
}

// The averages of a tile or of a tail, before they are stepped. On several threads.
class Looker {
 public:
  explicit Looker(const StepLook& look) : facts_(look.facts), number_(look.number) {}
  template <class RankToBlame>
  bool may_step(DType dtype, const void* averages, std::int64_t count, const RankToBlame& rank) {
    if (!facts_ || all_finite(dtype, averages, std::size_t(count))) return true;
    const MutexLock lock(mutex_);
    blame(*facts_, number_, rank());
    return false;
  }

 private:
  Mutex mutex_;
  AverageFacts* const facts_ TUTTI_THREAD_ANNOTATION(pt_guarded_by(mutex_));
  const std::int64_t number_;
};

void count_squares(const Shard& shard, double of_mine, double of_tail, AverageFacts& facts) {
  if (!shard.counts) return;
  facts.squares += of_mine;
  facts.tail_squares += of_tail;
}

double average_run(const Source& source, std::byte* into, std::int64_t number, AverageFacts& facts) {
  struct Sum {
    double squares = 0;
    int rank = -1;
    bool bad = false;
  };
  std::vector<Sum> sums(std::size_t((source.count + kUpdateGrain - 1) / kUpdateGrain));
  for_tiles(source, [&](std::int64_t run, std::int64_t place, const std::byte* average,
                        const std::vector<const void*>& gradients, std::int64_t count) {
    const double squares = sum_of_squares(source.dtype, average, std::size_t(count));
    Sum& sum = sums[std::size_t(run)];
    if (!std::isfinite(squares) && !sum.bad) sum = {sum.squares, rank_to_blame(gradients, source.dtype, count), true};
    sum.squares += squares;
    std::memcpy(into + place * source.size, average, std::size_t(count * source.size));
  });
  double total = 0;
  for (const auto& sum : sums) {
    if (sum.bad) blame(facts, number, sum.rank);
    total += sum.squares;
  }
  return total;
}

// Decides where the averages go.
void place_averages(Shard& shard, AveragesIn where) {
  shard.averaged = true;
  const auto memory = [&](std::int64_t count) {
    shard.averages = at::empty({count}, shard.weight.options().requires_grad(false));
    return static_cast<std::byte*>(shard.averages.data_ptr());
  };
  if (where == AveragesIn::kOwn) {
    shard.mine_average = memory(shard.mine.count + shard.tail.count);
    shard.tail_average = shard.mine_average + shard.mine.count * shard.element_bytes();
  } else {
    shard.mine_average = static_cast<std::byte*>(shard.gradient.data_ptr()) + shard.mine.begin * shard.element_bytes();
    // The peers read the gradient's tail too.
    shard.tail_average = shard.tail.count > 0 ? memory(shard.tail.count) : nullptr;
  }
}

}  // namespace

PeerGradients::PeerGradients(const Group& group, std::span<Shard* const> shards) : ranks_(std::size_t(group.size())) {
  std::vector<std::span<std::byte>> buffers;
  for (const auto* shard : shards)
    buffers.emplace_back(static_cast<std::byte*>(shard->gradient.data_ptr()), shard->gradient.nbytes());
  memory_ = peer_memory(group, buffers).or_throw();
}

std::span<std::byte* const> PeerGradients::of(std::size_t index) const {
  const auto* const places = memory_.data() + index * ranks_;
  return places[0] ? std::span(places, ranks_) : std::span<std::byte* const>();
}

bool PeerGradients::any() const {
  return std::any_of(memory_.begin(), memory_.end(), [](const auto* place) { return place != nullptr; });
}

void average_in_place(Shard& shard, std::span<std::byte* const> gradients, AveragesIn where, std::int64_t number,
                      AverageFacts& facts) {
  place_averages(shard, where);
  const double squares = average_run(source_of(shard, gradients, shard.mine), shard.mine_average, number, facts);
  const double of_tail = average_run(source_of(shard, gradients, shard.tail), shard.tail_average, number, facts);
  count_squares(shard, squares, of_tail, facts);
}

void look_at_own(const Group& group, const Shard& shard, std::int64_t number, AverageFacts& facts) {
  const double squares =
      sum_of_squares_of(shard.gradient.data_ptr(), std::size_t(shard.weight.numel()), shard.dtype == DType::kF64);
  if (!std::isfinite(squares)) blame(facts, number, group.rank());
}

Work average_async(const Group& group, DType dtype, void* values, std::int64_t count) {
  return group.submit({.kind = Kind::kAllReduce,
                       .dtype = dtype,
                       .op = ReduceOp::kAvg,
                       .in = values,
                       .out = values,
                       .count = std::size_t(count)});
}

AverageByCollectives::AverageByCollectives(const Group& group, Shard& shard, AveragesIn where, AverageOf what)
    : shard_(&shard), what_(!shard.large && what == AverageOf::kPart ? AverageOf::kWhole : what) {
  auto* const gradient = static_cast<std::byte*>(shard.gradient.data_ptr());
  place_averages(shard, where);
  if (what_ == AverageOf::kWhole) works_.push_back(average_async(group, shard.dtype, gradient, shard.weight.numel()));
  if (what_ != AverageOf::kPart) return;
  if (shard.mine.count > 0)
    works_.push_back(group.submit({.kind = Kind::kReduceScatter,
                                   .dtype = shard.dtype,
                                   .op = ReduceOp::kAvg,
                                   .in = gradient,
                                   .out = shard.mine_average,
                                   .count = std::size_t(shard.mine.count)}));
  if (shard.tail.count == 0) return;
  std::memcpy(shard.tail_average, gradient + shard.tail.begin * shard.element_bytes(),
              std::size_t(shard.tail.count * shard.element_bytes()));
  works_.push_back(average_async(group, shard.dtype, shard.tail_average, shard.tail.count));
}

void AverageByCollectives::end(AverageFacts& facts) {
  for (const auto& work : works_) work.get();
  const Shard& shard = *shard_;
  const bool is_double = shard.dtype == DType::kF64;
  const auto take = [&](const Run& run, std::byte* average) {
    const auto* const from =
        static_cast<const std::byte*>(shard.gradient.data_ptr()) + run.begin * shard.element_bytes();
    if (what_ != AverageOf::kPart && run.count > 0 && from != average)
      std::memcpy(average, from, std::size_t(run.count * shard.element_bytes()));
    return sum_of_squares_of(average, std::size_t(run.count), is_double);
  };
  const double squares = take(shard.mine, shard.mine_average);
  count_squares(shard, squares, take(shard.tail, shard.tail_average), facts);
}

void average_and_step(const Group& group, Shard& shard, std::span<std::byte* const> gradients, const Update& update,
                      const StepLook& look) {
  Looker looker(look);
  const auto step_run = [&](Run run, std::int64_t offset, bool give) {
    for_tiles(source_of(shard, gradients, run), [&](std::int64_t, std::int64_t place, const std::byte* average,
                                                    const std::vector<const void*>& given, std::int64_t count) {
      if (!looker.may_step(shard.dtype, average, count, [&] { return rank_to_blame(given, shard.dtype, count); }))
        return;
      const std::int64_t at = (run.begin + place) * shard.element_bytes();
      std::byte* const weight = shard.weight_at(0) + at;
      apply_update(update, shard.dtype, weight, average, StatePointers(shard.state, offset + place).at,
                   std::size_t(count));
      for (int r = 0; give && r < group.size(); ++r)
        if (r != group.rank())
          stream_bytes(shard.weights[std::size_t(r)] + at, weight, std::size_t(count * shard.element_bytes()));
    });
    fence_streams();
  };
  step_run(shard.mine, 0, true);
  step_run(shard.tail, shard.mine.count, false);
}

void step_averaged(const Group& group, Shard& shard, const Update& update, const StepLook& look) {
  Looker looker(look);
  const auto nobody = [] { return -1; };
  const std::int64_t size = shard.element_bytes(), tile = kTileBytes / size;
  at::parallel_for(0, shard.mine.count, kUpdateGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += tile) {
      const std::int64_t count = std::min(tile, end - i), at = (shard.mine.begin + i) * size;
      if (!looker.may_step(shard.dtype, shard.mine_average + i * size, count, nobody)) continue;
      apply_update(update, shard.dtype, shard.weight_at(0) + at, shard.mine_average + i * size,
                   StatePointers(shard.state, i).at, std::size_t(count));
      for (std::size_t r = 0; r < shard.weights.size(); ++r)
        if (int(r) != group.rank())
          stream_bytes(shard.weights[r] + at, shard.weight_at(0) + at, std::size_t(count * size));
    }
    fence_streams();
  });
  if (!looker.may_step(shard.dtype, shard.tail_average, shard.tail.count, nobody)) return;
  update_elements(update, shard.dtype, shard.weight_at(shard.tail.begin), shard.tail_average, shard.state,
                  shard.mine.count, shard.tail.count);
}

}  // namespace tutti
