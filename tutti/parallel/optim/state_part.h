#pragma once
// The state of an optimizer as named tensors, whole or in parts, for checkpoints and for other optimizers.
//
//   checkpoints.add("optimizer", optimizer);   // Checkpointer: an Optimizer or a ShardedOptimizer; loads on any number
//                                              // of ranks, in any stage
#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/checkpoint/state.h"

namespace tutti {

struct PlacedParameter;  // parallel/tensor/parameter_layout.h

// Elements [begin, begin + count) of a tensor that an optimizer keeps for a parameter, counted row by row.
struct StatePart {
  std::string parameter;            // "fc.weight"
  std::string state;                // "exp_avg", as torch.optim calls it, or "step", which is one i64
  std::vector<std::int64_t> shape;  // of the whole: the parameter's, or none
  std::int64_t begin = 0;
  at::Tensor values;        // [count]; the optimizer's own memory: who writes to it changes the optimizer
  bool may_differ = false;  // as StateBox has it
};

// The parts are saved and loaded in place, on any number of ranks. A load rejects a "step" that is no number of steps.
void add_state(StateDict& state, const std::vector<StatePart>& parts);
// Where the optimizer's parameters are parts of tensors (parallel/tensor/parameter_layout.h): in boxes of the whole
// tensors. `parts` are in rows and columns of this rank's tensors.
void add_state(StateDict& state, const std::vector<StatePart>& parts, std::span<const PlacedParameter> parameters);
// An optimizer.
template <class Optimizer>
  requires requires(Optimizer& optimizer) {
    { optimizer.own_state() } -> std::same_as<std::vector<StatePart>>;
  }
void add_state(StateDict& state, Optimizer& optimizer) { add_state(state, optimizer.own_state()); }

// The boxes, in row-major order, that elements [begin, begin + count) of a tensor of this shape are made of: at most
// two for each dimension, less one.
std::vector<TensorBox> boxes_of_run(const TensorShape& shape, std::uint64_t begin, std::uint64_t count);

// Copies what `from` has of each part of `to`. Throws an Exception that names the first part of which it has not all.
void copy_state(std::span<const StatePart> from, std::span<const StatePart> to);

}  // namespace tutti
