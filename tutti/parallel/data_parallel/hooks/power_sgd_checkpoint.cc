// The error of a rank is what the averages still lack of its gradients. On as many ranks each gets its own back, and
// the run goes on to the bit; on another number each gets the mean of all, so that the next average has as much of them
// as it would have had. (What is a rank's own, the approximation of its gradient with that error, is then another.)
#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "tutti/checkpoint/io/reader.h"
#include "tutti/parallel/data_parallel/hooks/power_sgd_state.h"
#include "tutti/parallel/data_parallel/reducer/reducer.h"
#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

constexpr const char *kQ = "power_sgd_q", *kError = "power_sgd_error";

bool is_matrix(const at::Tensor& parameter) { return parameter.dim() >= 2 && parameter.numel() > 0; }
at::Tensor as_matrix(const at::Tensor& parameter) { return parameter.detach().reshape({parameter.size(0), -1}); }

// This rank's row; where another number of ranks saved, the mean of theirs.
Status read_error(const CheckpointReader& saved, const TensorKey& key, const TensorShape& shape, const Group& group,
                  const at::Tensor& into) {
  const bool as_saved = shape[0] == std::uint64_t(group.size());
  const std::uint64_t first = as_saved ? std::uint64_t(group.rank()) : 0, last = as_saved ? first + 1 : shape[0];
  const auto one = at::empty_like(into);
  into.zero_();
  for (std::uint64_t row = first; row < last; ++row) {
    TUTTI_TRY(saved.read(key, TensorBox::rows(shape, row, 1), one.data_ptr()));
    into.add_(one);
  }
  into.div_(double(last - first));
  return {};
}

}  // namespace

std::vector<StatePart> PowerSgd::own_state(const Group& group, bool last_was_skipped, Progress& progress) {
  std::vector<StatePart> parts;
  progress = state_->progress;
  const auto add = [&](const std::string& name, const at::Tensor& q, const at::Tensor& error) {
    if (q.defined())
      parts.push_back({.parameter = name, .state = kQ, .shape = q.sizes().vec(), .values = q.view({-1})});
    if (error.defined())
      parts.push_back({.parameter = name,
                       .state = kError,
                       .shape = {group.size(), error.numel()},
                       .begin = group.rank() * error.numel(),
                       .values = error});
  };
  for (const auto& [name, kept] : state_->kept) add(name, kept.q, kept.error);
  for (auto& memory : state_->buckets) {
    state_->take_over_error(memory, last_was_skipped);
    if (memory.matrices.empty()) continue;
    progress.error_scale = memory.scale;
    progress.q_scale = memory.given_scale;
    for (const auto& one : memory.matrices) add(one.name, memory.has_q ? one.q : at::Tensor(), memory.error_of(one));
  }
  return parts;
}

void PowerSgd::state(StateDict& dict, const Group& group, std::vector<NamedTensor> parameters, bool last_was_skipped) {
  const auto progress = std::make_shared<Progress>();
  const auto parts = own_state(group, last_was_skipped, *progress);
  dict.optional_value("power_sgd_steps", progress->steps);
  dict.optional_value("power_sgd_draws", progress->draws);
  dict.optional_value("power_sgd_error_scale", progress->error_scale);
  dict.optional_value("power_sgd_q_scale", progress->q_scale);
  if (!dict.loading()) return add_state(dict, parts);
  for (const auto& [name, parameter] : parameters) {
    if (!is_matrix(parameter)) continue;
    const auto matrix = as_matrix(parameter);
    const TensorShape q = {std::uint64_t(matrix.size(1)), std::uint64_t(state_->rank_of(matrix))};
    const TensorShape errors = {std::uint64_t(group.size()), std::uint64_t(matrix.numel())};
    dict.optional_tensor({.key = {name, kQ}, .shape = q});
    dict.optional_tensor(
        {.key = {name, kError}, .shape = errors, .box = TensorBox::rows(errors, std::uint64_t(group.rank()), 1)});
  }
  if (dict.weights_only()) return;
  dict.after_load([this, progress, &group, parameters = std::move(parameters), prefix = dict.prefix()](
                      const CheckpointReader& saved) { return load(saved, *progress, group, parameters, prefix); });
}

Status PowerSgd::load(const CheckpointReader& saved, const Progress& progress, const Group& group,
                      std::span<const NamedTensor> parameters, const std::string& prefix) {
  constexpr std::int64_t kMostDraws = 1'000'000'000;
  auto& state = *state_;
  const auto mismatch = [&](const std::string& what) {
    return Error{.code = Code::kMismatch,
                 .detail = fmt::format("the checkpoint {}: {}", saved.folder(), what),
                 .hint = "resume with the model and the PowerSGD options of the run that saved it"};
  };
  if (progress.steps < 0 || progress.draws < 0 || progress.draws > kMostDraws)
    return mismatch(fmt::format("{} steps of PowerSGD with {} draws make no sense", progress.steps, progress.draws));
  for (const double scale : {progress.error_scale, progress.q_scale})
    if (!std::isfinite(scale) || scale <= 0)
      return mismatch(fmt::format("PowerSGD's scale of the loss is {}, which makes no sense", scale));

  for (const auto& [key, tensor] : saved.manifest().tensors) {
    if ((key.state != kQ && key.state != kError) || !key.name.starts_with(prefix)) continue;
    const TensorShape& shape = tensor.shape;
    const DType dtype = tensor.dtype;
    const auto found =
        std::find_if(parameters.begin(), parameters.end(),
                     [&, &name = key.name](const NamedTensor& one) { return prefix + one.name == name; });
    if (found == parameters.end() || !is_matrix(found->tensor))
      return mismatch(fmt::format("{} is of no matrix of this model", to_string(key)));
    const auto matrix = as_matrix(found->tensor);
    const bool is_q = key.state == kQ;
    const TensorShape wanted = is_q ? TensorShape{std::uint64_t(matrix.size(1)), std::uint64_t(state.rank_of(matrix))}
                                    : TensorShape{shape.empty() ? 1 : shape[0], std::uint64_t(matrix.numel())};
    const auto values =
        at::empty({is_q ? matrix.size(1) * state.rank_of(matrix) : matrix.numel()}, matrix.options().device(at::kCPU));
    const auto own_dtype = checked_bytes(values, key.name).dtype;
    if (shape != wanted || shape[0] == 0 || dtype != own_dtype)
      return mismatch(fmt::format("{} is {}{}, expected {}{}", to_string(key), tutti::name(dtype), shape_text(shape),
                                  tutti::name(own_dtype), shape_text(wanted)));
    if (is_q) {
      TUTTI_TRY(saved.read(key, TensorBox::whole(shape), values.data_ptr()));
      state.kept[found->name].q = values.view({matrix.size(1), -1});
    } else {
      TUTTI_TRY(read_error(saved, key, shape, group, values));
      state.kept[found->name].error = values;
    }
  }
  for (; state.progress.draws < progress.draws; ++state.progress.draws) (void)state.random.integer(0, State::kMostSeed);
  state.progress = progress;
  return {};
}

void PowerSgdState::state(StateDict& dict) {
  const auto tensors = reducer_.parameters();
  const auto names = reducer_.names();
  std::vector<NamedTensor> parameters;
  for (std::size_t i = 0; i < tensors.size(); ++i) parameters.push_back({names[i], tensors[i]});
  hook_.state(dict, reducer_.group(), std::move(parameters), reducer_.skips_step());
}

}  // namespace tutti
