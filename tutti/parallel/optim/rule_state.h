#pragma once
// What a rule keeps for a run of elements of a parameter, and how far it is.
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/parallel/optim/state_part.h"
#include "tutti/parallel/optim/update_rule.h"

namespace tutti {

struct RuleState {
  at::Tensor step;                  // i64 without dimensions: steps that were made; undefined before the first
  std::vector<at::Tensor> tensors;  // [count], in the order of state_kinds()

  // Makes what is missing, with the values that it starts from, for so many elements like `weight`, and moves the rest
  // to the device of `weight`.
  void prepare(const UpdateRule& rule, std::int64_t count, const at::Tensor& weight);
  // Counts a step, and says what it does.
  Update next_update(const UpdateRule& rule);
  std::size_t bytes() const;
};

// A run of the elements of a parameter, in the order of memory.
struct Run {
  std::int64_t begin = 0, count = 0;
  std::int64_t end() const { return begin + count; }
};

// The state as parts of the parameter's: its runs, one after another, are what the state is of. Throws where the
// parameter does not lie row by row.
void append_parts(std::vector<StatePart>& parts, const RuleState& state, const UpdateRule& rule,
                  const std::string& name, const at::Tensor& parameter, const std::vector<Run>& runs);

// Updates `count` elements in memory of the CPU, whose state begins at `offset`, on as many threads as LibTorch uses.
void update_elements(const Update& update, DType dtype, std::byte* weight, const std::byte* gradient,
                     std::span<const at::Tensor> state, std::int64_t offset, std::int64_t count);

inline constexpr std::int64_t kUpdateGrain = 1 << 15;  // elements that are worth a thread

// The state from element `offset` on, for apply_update().
struct StatePointers {
  static constexpr std::size_t kMost = 3;  // state tensors of a rule that steps elements
  StatePointers(std::span<const at::Tensor> state, std::int64_t offset);
  void* at[kMost] = {};
};

// f32 or f64, without holes, on any device; `role` names the tensor in the refusal of anything else.
DType updated_dtype(const at::Tensor& tensor, const std::string& role);

}  // namespace tutti
