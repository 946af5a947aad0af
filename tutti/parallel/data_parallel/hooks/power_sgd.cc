// For each matrix M of a bucket, with Q from the last step (or drawn at random), orthonormal:
//
//   P = M Q           summed over the ranks, columns made orthonormal
//   Q = M^T P         averaged over the ranks
//   M' = P Q^T        what every rank takes for the average; M - M' is this rank's error
//
// The P of all matrices of a bucket lie in one range, and so do the Q: a bucket makes three calls, one for what is not
// worth compressing. P's starts in start() and hides behind backward(), Q's comes in the second half. All memory is
// kept from step to step; where buckets are built anew, Q and error go with their parameters.
//
// The error is as large as its gradients were. Where a LossScaler has changed their scale since, it is brought to the
// new one before it is added to them: the steps are those of a run without a scale. A step that was left out, because
// this bucket or another overflowed, leaves the error that was there before it.
#include "tutti/parallel/data_parallel/hooks/power_sgd.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tutti/parallel/data_parallel/hooks/power_sgd_state.h"
#include "tutti/parallel/gradients/tensor_math.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/group_tensor.h"
#include "tutti/tensor/rank_device.h"

namespace tutti {
namespace {

// Gram-Schmidt, in place. As in PyTorch, 3 and more columns of f32 or f64 by QR, which is more exact and faster;
// LibTorch has no QR for 16 bits. Gram-Schmidt leaves a column of zeros as it is; returns the least norm, a number in
// f64 on the device of the matrix, or an undefined tensor after a QR. Does not wait for a GPU.
at::Tensor orthogonalize(const at::Tensor& matrix, double epsilon) {
  const auto columns = matrix.size(1);
  at::Tensor least;
  if (columns > 2 && matrix.element_size() > 2) {
    matrix.copy_(std::get<0>(at::linalg_qr(matrix)));
    return least;
  }
  for (std::int64_t i = 0; i < columns; ++i) {
    const auto column = matrix.narrow(1, i, 1);
    const at::Tensor norm = column.norm().to(at::kDouble);
    least = least.defined() ? at::minimum(least, norm) : norm;
    column.div_(at::where(norm.gt(0), norm + epsilon, at::ones_like(norm)));
    if (i + 1 == columns) continue;
    const auto rest = matrix.narrow(1, i + 1, columns - i - 1);
    rest.sub_((column * rest).sum(at::IntArrayRef{0}, true) * column);
  }
  return least;
}

// Normal numbers that all ranks draw alike, whatever device the matrix is on.
at::Tensor drawn_like(const at::Tensor& matrix, const at::Generator& on_cpu) {
  return copied_to(at::randn(matrix.sizes(), on_cpu, matrix.options().device(at::kCPU)), matrix.device());
}

// Of a window's first element, in elements.
std::int64_t place_in(const at::Tensor& buffer, const at::Tensor& window) {
  return (static_cast<char*>(window.data_ptr()) - static_cast<char*>(buffer.data_ptr())) /
         std::int64_t(buffer.element_size());
}

}  // namespace

PowerSgd::PowerSgd(PowerSgdOptions options) {
  TUTTI_REQUIRE(options.rank >= 1, "PowerSgd: rank is ", options.rank, "; expected 1 or more");
  TUTTI_REQUIRE(options.start_step >= 2 || !(options.error_feedback || options.warm_start), "PowerSgd: start_step is ",
                options.start_step,
                "; expected 2 or more with error_feedback or warm_start, because buckets are built ",
                "again after the first step");
  TUTTI_REQUIRE(options.orthogonalization_epsilon >= 0, "PowerSgd: orthogonalization_epsilon is ",
                options.orthogonalization_epsilon, "; expected 0 or more");
  state_ = std::make_unique<State>(options);
}
PowerSgd::~PowerSgd() = default;

PowerSgd::Elements PowerSgd::elements() const { return state_->elements; }

std::string PowerSgd::name() const {
  const auto& o = state_->options;
  return fmt::format("power_sgd(rank {}, from step {}, rate {}, error_feedback {}, warm_start {}, epsilon {}, seed {})",
                     o.rank, o.start_step, o.min_compression_rate, o.error_feedback, o.warm_start,
                     o.orthogonalization_epsilon, o.seed);
}

at::Tensor PowerSgd::State::Memory::error_of(const Compressed& one) const {
  return error.defined() ? error.narrow(0, place_in(buffer, one.m), one.m.numel()) : at::Tensor();
}

std::int64_t PowerSgd::State::rank_of(const at::Tensor& matrix) const {
  return std::min({matrix.size(0), matrix.size(1), options.rank});
}

void PowerSgd::State::lay_out(Memory& memory, const Group& group, const GradientBucket& bucket) {
  memory = Memory{.buffer = bucket.buffer};
  std::vector<NamedTensor> matrices;
  std::int64_t p_count = 0, q_count = 0, packed_count = 0;
  for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
    const auto& gradient = bucket.gradients[i];
    const bool is_matrix = gradient.dim() >= 2 && gradient.numel() > 0 && gradient.is_contiguous();
    const auto matrix = is_matrix ? gradient.view({gradient.size(0), -1}) : at::Tensor();
    const auto thin = is_matrix ? double((matrix.size(0) + matrix.size(1)) * rank_of(matrix)) : 0;
    if (is_matrix && thin * options.min_compression_rate < double(gradient.numel())) {
      matrices.push_back({bucket.names[i], matrix});
      p_count += matrix.size(0) * rank_of(matrix);
      q_count += matrix.size(1) * rank_of(matrix);
    } else {
      memory.others.push_back(gradient);
      packed_count += gradient.numel();
    }
  }
  const auto options_of = bucket.buffer.options();
  memory.all_p = group_tensor(group, p_count, options_of);
  memory.all_q = group_tensor(group, q_count, options_of);
  memory.packed = group_tensor(group, packed_count, options_of);
  if (options.error_feedback)
    memory.error = at::zeros_like(bucket.buffer), memory.given = at::zeros_like(bucket.buffer);
  std::int64_t p_at = 0, q_at = 0;
  for (const auto& [name, m] : matrices) {
    const auto r = rank_of(m);
    memory.matrices.push_back({name, m, memory.all_p.narrow(0, p_at, m.size(0) * r).view({m.size(0), r}),
                               memory.all_q.narrow(0, q_at, m.size(1) * r).view({m.size(1), r})});
    p_at += m.size(0) * r;
    q_at += m.size(1) * r;
  }
  fill_from_kept(memory);
}

// Between steps all buckets have the same scales.
void PowerSgd::State::keep(const Memory& memory) {
  if (memory.matrices.empty()) return;
  progress.error_scale = memory.scale;
  progress.q_scale = memory.given_scale;
  for (const auto& one : memory.matrices) {
    const auto error = memory.error_of(one);
    kept[one.name] = {memory.has_q ? one.q.clone() : at::Tensor(), error.defined() ? error.clone() : at::Tensor()};
  }
}

void PowerSgd::State::fill_from_kept(Memory& memory) {
  memory.has_q = options.warm_start && has_begun;  // each bucket draws once, also one without a matrix
  memory.scale = progress.error_scale;
  memory.given_scale = progress.q_scale;
  for (const auto& one : memory.matrices) {
    const auto found = kept.find(one.name);
    if (found == kept.end() || !found->second.q.defined()) memory.has_q = false;
    if (found == kept.end()) continue;
    if (found->second.q.defined()) one.q.copy_(found->second.q);
    if (found->second.error.defined() && options.error_feedback) memory.error_of(one).copy_(found->second.error);
    kept.erase(found);
  }
}

PowerSgd::State::Memory& PowerSgd::State::memory_of(const Group& group, const GradientBucket& bucket) {
  if (buckets.size() <= bucket.index) buckets.resize(bucket.index + 1);
  if (!buckets[bucket.index].buffer.is_same(bucket.buffer)) {
    // The first of a step comes before any of it is on its way: then all that was is kept.
    for (auto& old : std::span(buckets).subspan(bucket.index, bucket.index == 0 ? buckets.size() : 1)) {
      take_over_error(old, bucket.last_was_skipped);
      keep(old);
      old = {};
    }
    lay_out(buckets[bucket.index], group, bucket);
  }
  return buckets[bucket.index];
}

at::Generator PowerSgd::State::next_generator() {
  ++progress.draws;
  return at::detail::createCPUGenerator(std::uint64_t(random.integer(0, kMostSeed)));
}

void PowerSgd::State::draw_q(Memory& memory) {
  auto generator = next_generator();
  for (const auto& one : memory.matrices) one.q.copy_(drawn_like(one.q, generator));
}

// Orthonormal columns: of the last step's Q, or of a new one. A column of zeros, which a gradient of zeros leaves, is
// drawn again: P would have the column too, and so every later Q.
void PowerSgd::State::prepare_q(Memory& memory) {
  if (!memory.has_q) draw_q(memory);
  const double scale = memory.has_q ? memory.given_scale : 1;
  const double epsilon = options.orthogonalization_epsilon * scale;
  std::vector<const Compressed*> by_columns;
  std::vector<at::Tensor> norms;
  for (const auto& one : memory.matrices) {
    const at::Tensor least = orthogonalize(one.q, epsilon);
    if (least.defined()) by_columns.push_back(&one), norms.push_back(least);
  }
  const std::vector<double> least_norms = values_of(norms);  // one wait for a GPU
  for (std::size_t i = 0; i < by_columns.size(); ++i) {
    if (least_norms[i] != 0) continue;
    const at::Tensor& q = by_columns[i]->q;
    const auto drawn = drawn_like(q, next_generator());
    q.copy_(at::where(q.eq(0).all(0, /*keepdim=*/true), drawn, q));
    orthogonalize(q, epsilon);
  }
  memory.has_q = options.warm_start;
}

// What is too small to be worth compressing goes as it is.
void PowerSgd::State::gather_others(Memory& memory) {
  std::int64_t at = 0;
  for (const auto& other : memory.others) {
    memory.packed.narrow(0, at, other.numel()).copy_(other.reshape({-1}));
    at += other.numel();
  }
  elements.before += at;
  elements.after += at;
}

void PowerSgd::State::spread_others(Memory& memory) {
  std::int64_t at = 0;
  for (const auto& other : memory.others) {
    other.copy_(memory.packed.narrow(0, at, other.numel()).view(other.sizes()));
    at += other.numel();
  }
}

// What this rank gave and the average lacks: the error, once the step has counted. A NaN would stay in it for good, so
// a step that had one, which shows in the sums of all ranks alike, leaves none, and a new Q, of the size that it would
// have had.
void PowerSgd::State::find_error(Memory& memory) {
  memory.has_new_error = true;
  std::vector<at::Tensor> greatest;
  for (const at::Tensor& sums : {memory.all_p, memory.all_q})
    if (sums.numel() > 0) greatest.push_back(greatest_magnitude(sums));
  for (const double value : values_of(greatest)) memory.has_new_error &= std::isfinite(value);
  if (!memory.has_new_error && memory.has_q) {
    draw_q(memory);
    memory.all_q.mul_(memory.given_scale);
  }
  if (!memory.has_new_error || !options.error_feedback) return;
  at::sub_out(memory.given, memory.given, memory.buffer);
  // Others lose nothing on the way: their difference is other ranks' gradients.
  for (const auto& other : memory.others) memory.given.narrow(0, place_in(memory.buffer, other), other.numel()).zero_();
}

// Of the last step, unless that was left out: then what was lost before it has still to come. Once a step.
void PowerSgd::State::take_over_error(Memory& memory, bool was_skipped) {
  if (!std::exchange(memory.has_new_error, false) || was_skipped) return;
  std::swap(memory.error, memory.given);
  memory.scale = memory.given_scale;
}

CommHook::Finish PowerSgd::start(const Group& group, const GradientBucket& bucket) {
  auto& state = *state_;
  const bool plain = state.progress.steps < state.options.start_step;
  state.has_begun = state.progress.steps > state.options.start_step;
  if (bucket.is_last) ++state.progress.steps;
  if (plain) {
    auto work = all_reduce_async(group, bucket.buffer, ReduceOp::kAvg);
    return [work = std::move(work), buffer = bucket.buffer] {
      work.get();
      return buffer;
    };
  }
  auto& memory = state.memory_of(group, bucket);
  state.take_over_error(memory, bucket.last_was_skipped);
  if (state.options.error_feedback) {
    bucket.buffer.add_(memory.error, bucket.scale / memory.scale);
    memory.given.copy_(bucket.buffer);
  }
  state.prepare_q(memory);
  memory.given_scale = bucket.scale;
  for (auto& one : memory.matrices) {
    at::mm_out(one.p, one.m, one.q);
    state.elements.before += one.m.numel();
    state.elements.after += one.p.numel() + one.q.numel();
  }
  state.gather_others(memory);
  auto packed_work = all_reduce_async(group, memory.packed, ReduceOp::kAvg);
  auto p_work = all_reduce_async(group, memory.all_p, ReduceOp::kSum);
  return [this, group, index = bucket.index, packed_work = std::move(packed_work), p_work = std::move(p_work)] {
    auto& memory = state_->buckets[index];
    packed_work.get();
    p_work.get();
    for (auto& one : memory.matrices) {
      orthogonalize(one.p, state_->options.orthogonalization_epsilon * memory.given_scale);
      at::mm_out(one.q, one.m.t(), one.p);
    }
    all_reduce(group, memory.all_q, ReduceOp::kAvg);
    for (auto& one : memory.matrices) at::mm_out(one.m, one.p, one.q.t());
    state_->spread_others(memory);
    state_->find_error(memory);
    return memory.buffer;
  };
}

}  // namespace tutti
