#pragma once
// The parameters and buffers of a module as parts of a checkpoint, by the names that Python's state_dict() gives them.
//
//   checkpoints.add("model", model);           // Checkpointer; a module, its holder, or a pointer to it
//   state.add("average", average_weight);      // StateDict; a tensor
#include <ATen/core/Tensor.h>

#include <concepts>

#include "tutti/checkpoint/state.h"

namespace torch::nn {
class Module;
}

namespace tutti {

// Parameters and buffers, which every rank has as a whole: one of the ranks writes each parameter, and the first rank
// the buffers, since DataParallel and FullySharded let those of the others differ. A tensor that is registered
// twice (a tied weight) is saved under its first name. Tensors may be on any device and in any layout; where they are
// not contiguous in memory of the CPU they pass through a copy, row by row. Throws Exception for tensors without dense
// memory.
void add_state(StateDict& state, const torch::nn::Module& module);
template <class Holder>
  requires requires(const Holder& holder) {
    { *holder } -> std::convertible_to<const torch::nn::Module&>;
  }
void add_state(StateDict& state, const Holder& holder) {
  add_state(state, static_cast<const torch::nn::Module&>(*holder));
}
// A tensor that is equal on all ranks, as StateDict::tensor() takes it.
StateBox state_box(TensorKey key, const at::Tensor& tensor);
// As `box` of a tensor of this shape.
StateBox state_box(TensorKey key, const at::Tensor& tensor, TensorShape shape, TensorBox box);

}  // namespace tutti
