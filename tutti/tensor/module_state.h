#pragma once
// The parameters and buffers of a module as parts of a checkpoint, by the names that Python's state_dict() gives them.
//
//   std::vector<SavedBox> boxes = saved_boxes(*model);                   // and those of the optimizer (state_part.h)
//   save_checkpoint(world, folder, boxes, {.step = 100});
//   ...
//   read_module(reader, *model).or_throw();
#include <vector>

#include "tutti/checkpoint/io/reader.h"
#include "tutti/checkpoint/io/writer.h"

namespace torch::nn {
class Module;
}

namespace tutti {

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
