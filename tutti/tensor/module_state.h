#pragma once
// The parameters and buffers of a module as parts of a checkpoint, by the names that Python's state_dict() gives them.
//
//   checkpoints.add("model", model);           // Checkpointer; a module, its holder, or a pointer to it
//   state.add("average", average_weight);      // StateDict; a tensor
#include <ATen/core/Tensor.h>

#include <concepts>
#include <vector>

#include "tutti/checkpoint/io/reader.h"
#include "tutti/checkpoint/io/writer.h"
#include "tutti/checkpoint/state.h"

namespace torch::nn {
class Module;
}

namespace tutti {

// Parameters and buffers, which every rank has as a whole: one of the ranks writes each. A tensor that is registered
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

// Every rank gives all of them, and one of them writes each. A tensor that is registered twice (a tied weight) is saved
// under its first name. They point into the module's memory, or, of a tensor that is not contiguous or on a GPU, hold
// it. Throws Exception for tensors that have no dense memory.
std::vector<SavedBox> saved_boxes(const torch::nn::Module& module);
// What saved_boxes() would save, for CheckpointReader::expect().
std::vector<ExpectedTensor> expected_tensors(const torch::nn::Module& module);
// Into the tensors that the module has. kMismatch names the first that is missing, or of another shape or type; others
// of the checkpoint are left alone. On error some tensors may have been read already.
Status read_module(const CheckpointReader& reader, const torch::nn::Module& module);

}  // namespace tutti
