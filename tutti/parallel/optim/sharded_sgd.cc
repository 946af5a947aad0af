// A parameter of `count` elements is cut into one part a rank, on cache lines, and a tail of a few lines that does not
// divide and that every rank steps for itself, alike.
//
// One host. The ranks show one another where their weights and gradients lie, which is also the meeting after which
// everybody's backward() is over. Then each takes its part tile by tile: adds the gradients of all ranks, in rank
// order, into a tile in the first-level cache, steps weights and momentum, and streams the new weights to the peers. A
// second meeting ends it. Per element of a part: n gradients, weight and momentum read, momentum and n weights written,
// 4 (2n + 3) bytes; for a rank, with n = 2, 14 a parameter where an all_reduce (8) and a step of its own (20) take 28.
//
// Several hosts, or memory that the peers cannot see: reduce_scatter of the gradient, step of the part, all_gather of
// the weights. The tail is all-reduced.
#include "tutti/parallel/optim/sharded_sgd.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <span>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/kernels/copy.h"
#include "tutti/comm/kernels/reduce.h"
#include "tutti/comm/peer_memory.h"
#include "tutti/parallel/ddp/gradient_taker.h"
#include "tutti/parallel/optim/sgd_rule.h"
#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

constexpr std::int64_t kTileBytes =
    16 << 10;                             // with the weights and momentum it goes with, within the first-level cache
constexpr std::int64_t kGrain = 1 << 15;  // elements that are worth a thread

struct Cut {
  std::int64_t part;  // elements of each rank's part
  std::int64_t tail;  // elements after the last part
};

Cut cut(std::int64_t count, std::int64_t element, int ranks) {
  const std::int64_t line = 64 / element;
  const std::int64_t part = count / ranks / line * line;
  return {part, count - part * ranks};
}

// The same memory, for the peers too; the tensor itself stays, and so do those who hold it.
void move_to_heap(const Group& group, at::Tensor parameter) {
  auto memory = group.allocate(parameter.nbytes());
  if (!memory.ok()) return;  // the heap is full: the weights travel by collectives then
  auto* const data = (*memory).get();
  const auto moved = at::from_blob(
      data, parameter.sizes(), parameter.strides(), [keep = *std::move(memory)](void*) {},
      parameter.options().requires_grad(false));
  moved.copy_(parameter.detach());
  parameter.set_data(moved);
}

struct Large {
  at::Tensor weight;
  Cut shape{};
  at::Tensor momentum;  // of this rank's part, then of the tail; undefined before the first step
};

// What the ranks of one host do with a stretch of a parameter.
template <class T>
struct Stretch {
  DType dtype;
  std::vector<const void*> gradients;  // of all ranks, where the stretch begins
  std::vector<T*> others;              // the peers' weights, likewise: they get the result
  T* weight;
  T* momentum;
  std::int64_t count;
};

template <class T>
void average_and_step(const Stretch<T>& s, const SgdOptions& options) {
  constexpr std::int64_t kTile = kTileBytes / std::int64_t(sizeof(T));
  at::parallel_for(0, s.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) T average[kTile];
    std::vector<const void*> gradients(s.gradients.size());
    for (std::int64_t i = begin; i < end; i += kTile) {
      const std::int64_t count = std::min(kTile, end - i);
      for (std::size_t r = 0; r < gradients.size(); ++r) gradients[r] = static_cast<const T*>(s.gradients[r]) + i;
      void* const out[] = {average};
      reduce_many(s.dtype, ReduceOp::kAvg, gradients, out, std::size_t(count), int(gradients.size()));
      apply_sgd(s.weight + i, average, s.momentum + i, count, options);
      for (T* other : s.others) stream_bytes(other + i, s.weight + i, std::size_t(count) * sizeof(T));
    }
    fence_streams();
  });
}

}  // namespace

struct ShardedSgd::State final : GradientTaker {
  Reducer& reducer;
  SgdOptions options;
  std::vector<at::Tensor> parameters;
  std::vector<Large> large;  // by parameter; those that are small have no weight
  std::unique_ptr<Sgd> small;
  std::vector<TakenGradient> gradients;  // of large parameters, in this step

  State(Reducer& with, SgdOptions given) : reducer(with), options(given), parameters(with.parameters()) {}
  bool takes_in_backward() const override { return false; }
  void take(std::span<const TakenGradient> bucket) override;
  void taken(std::span<const std::uint8_t> used) override;
  void step_large();
  template <class T>
  void step_in_place(Large& one, std::byte* const* weights, std::byte* const* gradients);
  template <class T>
  void step_by_collectives(Large& one, const at::Tensor& gradient);
};

template <class T>
void ShardedSgd::State::step_in_place(Large& one, std::byte* const* weights, std::byte* const* gradients) {
  const int ranks = reducer.group().size(), rank = reducer.group().rank();
  const auto stretch = [&](std::int64_t begin, std::int64_t count, std::int64_t momentum, bool give) {
    Stretch<T> s{.dtype = dtype_of<T>(), .weight = one.weight.data_ptr<T>() + begin, .count = count};
    s.momentum = one.momentum.data_ptr<T>() + momentum;
    for (int r = 0; r < ranks; ++r) {
      s.gradients.push_back(reinterpret_cast<const T*>(gradients[r]) + begin);
      if (give && r != rank) s.others.push_back(reinterpret_cast<T*>(weights[r]) + begin);
    }
    average_and_step(s, options);
  };
  stretch(one.shape.part * rank, one.shape.part, 0, true);
  stretch(one.shape.part * ranks, one.shape.tail, one.shape.part, false);
}

template <class T>
void ShardedSgd::State::step_by_collectives(Large& one, const at::Tensor& gradient) {
  const Group& group = reducer.group();
  const auto begin = now();
  T* const g = gradient.data_ptr<T>();
  T* const w = one.weight.data_ptr<T>();
  const std::int64_t part = one.shape.part, mine = part * group.rank(), tail = part * group.size();
  const auto run = [&](Kind kind, const T* in, T* out, std::int64_t count) {
    group
        .run({.kind = kind,
              .dtype = dtype_of<T>(),
              .op = ReduceOp::kAvg,
              .in = in,
              .out = out,
              .count = std::size_t(count)})
        .or_throw();
  };
  run(Kind::kReduceScatter, g, g + mine, part);
  if (one.shape.tail > 0) run(Kind::kAllReduce, g + tail, g + tail, one.shape.tail);
  reducer.count_exposed(seconds_since(begin));
  T* const m = one.momentum.data_ptr<T>();
  apply_sgd(w + mine, g + mine, m, part, options);
  apply_sgd(w + tail, g + tail, m + part, one.shape.tail, options);
  const auto stepped = now();
  run(Kind::kAllGather, w + mine, w, part);
  reducer.count_exposed(seconds_since(stepped));
}

void ShardedSgd::State::take(std::span<const TakenGradient> bucket) {
  std::vector<at::Tensor> packed;
  for (const auto& gradient : bucket) {
    if (large[gradient.parameter].weight.defined()) {
      gradients.push_back(gradient);
    } else {
      packed.push_back(gradient.value.as_strided({gradient.value.numel()}, {1}));
      parameters[gradient.parameter].mutable_grad() = gradient.value;
    }
  }
  if (!packed.empty()) all_reduce_coalesced(reducer.group(), packed, ReduceOp::kAvg);
}

void ShardedSgd::State::taken(std::span<const std::uint8_t> used) {
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i] && !large[i].weight.defined()) parameters[i].mutable_grad() = at::Tensor();
  std::erase_if(gradients, [&](const TakenGradient& gradient) { return !used[gradient.parameter]; });
}

void ShardedSgd::State::step_large() {
  if (gradients.empty()) return;
  const Group& group = reducer.group();
  std::vector<std::span<std::byte>> buffers;  // weight and gradient of each
  const auto show = [&](const at::Tensor& tensor) {
    buffers.emplace_back(static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes());
  };
  for (const auto& [index, gradient] : gradients) {
    show(large[index].weight);
    show(gradient);
  }
  const auto begin = now();
  const auto memory = peer_memory(group, buffers).or_throw();
  reducer.count_exposed(seconds_since(begin));
  const std::size_t ranks = std::size_t(group.size());
  bool in_place = false;
  // What backward() made last is still in the caches.
  for (std::size_t k = gradients.size(); k-- > 0;) {
    Large& one = large[gradients[k].parameter];
    const at::Tensor& gradient = gradients[k].value;
    const bool is_float = one.weight.scalar_type() == at::kFloat;
    if (!one.momentum.defined())
      one.momentum = at::zeros({one.shape.part + one.shape.tail}, one.weight.options().requires_grad(false));
    std::byte* const* const weights = memory.data() + 2 * k * ranks;
    if (weights[0] && weights[ranks]) {
      in_place = true;
      is_float ? step_in_place<float>(one, weights, weights + ranks)
               : step_in_place<double>(one, weights, weights + ranks);
    } else {
      is_float ? step_by_collectives<float>(one, gradient) : step_by_collectives<double>(one, gradient);
    }
    one.weight.unsafeGetTensorImpl()->bump_version();  // autograd must see that saved weights were overwritten
  }
  const auto stepped = now();
  if (in_place && ranks > 1) barrier(group);
  gradients.clear();
  reducer.count_exposed(seconds_since(stepped));
}

ShardedSgd::ShardedSgd(Reducer& reducer, SgdOptions options) : state_(std::make_unique<State>(reducer, options)) {
  const at::NoGradGuard no_grad;
  const auto& parameters = state_->parameters;
  std::vector<at::Tensor> small;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& parameter = parameters[i];
    TUTTI_REQUIRE(parameter.scalar_type() == at::kFloat || parameter.scalar_type() == at::kDouble,
                  "ShardedSgd: a parameter is ", describe(parameter), "; expected f32 or f64");
    Large& large = state_->large.emplace_back();
    if (!reducer.is_large(i)) {
      small.push_back(parameter);
      continue;
    }
    if (reducer.group().size() > 1) move_to_heap(reducer.group(), parameter);
    large.weight = parameter.detach();
    large.shape = cut(parameter.numel(), std::int64_t(parameter.element_size()), reducer.group().size());
  }
  state_->small = std::make_unique<Sgd>(std::move(small), options);
  reducer.attach_optimizer(*state_);
}

ShardedSgd::~ShardedSgd() { state_->reducer.detach_optimizer(); }

void ShardedSgd::step() {
  const at::NoGradGuard no_grad;
  state_->gradients.clear();
  state_->reducer.finish();
  if (state_->reducer.skips_step()) return;
  state_->small->step();
  state_->step_large();
}

void ShardedSgd::zero_grad() { state_->reducer.zero_grad(); }
double ShardedSgd::lr() const { return state_->options.lr; }
void ShardedSgd::set_lr(double lr) {
  state_->options.lr = lr;
  state_->small->set_lr(lr);
}

std::size_t ShardedSgd::state_bytes() const {
  std::size_t bytes = state_->small->state_bytes();
  for (const auto& one : state_->large)
    if (one.momentum.defined()) bytes += one.momentum.nbytes();
  return bytes;
}

}  // namespace tutti
