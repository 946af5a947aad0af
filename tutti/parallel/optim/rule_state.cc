// The state of a run lies in the order of memory, as the run does, whatever strides the parameter has.
#include "tutti/parallel/optim/rule_state.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include "tutti/tensor/tensor_bytes.h"

namespace tutti {

void RuleState::prepare(const UpdateRule& rule, std::int64_t count, const at::Tensor& weight) {
  for (at::Tensor& tensor : tensors)
    if (tensor.device() != weight.device()) tensor = tensor.to(weight.device());
  if (step.defined()) return;
  for (const auto& kind : state_kinds(rule))
    tensors.push_back(at::full({count}, kind.initial, weight.options().requires_grad(false)));
  step = at::zeros({}, at::kLong);
}

Update RuleState::next_update(const UpdateRule& rule) { return update_in_step(rule, ++*step.data_ptr<std::int64_t>()); }

std::size_t RuleState::bytes() const {
  std::size_t bytes = 0;
  for (const auto& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

void append_parts(std::vector<StatePart>& parts, const RuleState& state, const UpdateRule& rule,
                  const std::string& name, const at::Tensor& parameter, const std::vector<Run>& runs) {
  TUTTI_REQUIRE(parameter.is_contiguous(), tutti::name(rule), ": the state of parameter ", name, ", ",
                describe(parameter), ", cannot be named by its place: the parameter is not contiguous; ",
                "use tensor.contiguous() before the optimizer is made");
  const auto kinds = state_kinds(rule);
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    std::int64_t offset = 0;
    for (const auto& run : runs) {
      parts.push_back({.parameter = name,
                       .state = kinds[k].name,
                       .shape = parameter.sizes().vec(),
                       .begin = run.begin,
                       .values = state.tensors[k].narrow(0, offset, run.count)});
      offset += run.count;
    }
  }
  parts.push_back({.parameter = name, .state = "step", .values = state.step.view({1})});
}

StatePointers::StatePointers(std::span<const at::Tensor> state, std::int64_t offset) {
  TUTTI_REQUIRE(state.size() <= kMost, state.size(), " state tensors; StatePointers::kMost is ", kMost);
  for (std::size_t k = 0; k < state.size(); ++k)
    at[k] = static_cast<std::byte*>(state[k].data_ptr()) + offset * std::int64_t(state[k].element_size());
}

void update_elements(const Update& update, DType dtype, std::byte* weight, const std::byte* gradient,
                     std::span<const at::Tensor> state, std::int64_t offset, std::int64_t count) {
  const auto size = std::int64_t(size_of(dtype));
  at::parallel_for(0, count, kUpdateGrain, [&](std::int64_t begin, std::int64_t end) {
    apply_update(update, dtype, weight + begin * size, gradient + begin * size, StatePointers(state, offset + begin).at,
                 std::size_t(end - begin));
  });
}

DType updated_dtype(const at::Tensor& tensor, const std::string& role) {
  require_memory(tensor, role);
  TUTTI_REQUIRE(tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble, role, " is ",
                describe(tensor), "; expected f32 or f64");
  TUTTI_REQUIRE(tensor.is_non_overlapping_and_dense(), role, ", ", describe(tensor),
                ", has holes or overlaps in memory; use tensor.contiguous()");
  return tensor.scalar_type() == at::kFloat ? DType::kF32 : DType::kF64;
}

}  // namespace tutti
