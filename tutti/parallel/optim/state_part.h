#pragma once
// The state of an optimizer as named tensors, whole or in parts, for checkpoints and for other optimizers.
//
//   std::vector<SavedBox> boxes = saved_boxes(optimizer.own_state());   // and those of the model
//   save_checkpoint(group, folder, boxes, facts);
//   ...
//   read_state(reader, optimizer.own_state()).or_throw();               // on any number of ranks, in any stage
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/checkpoint/io/reader.h"
#include "tutti/checkpoint/io/writer.h"

namespace tutti {

// Elements [begin, begin + count) of a tensor that an optimizer keeps for a parameter, counted row by row.
struct StatePart {
  std::string parameter;            // "fc.weight"
  std::string state;                // "exp_avg", as torch.optim calls it, or "step", which is one i64
  std::vector<std::int64_t> shape;  // of the whole: the parameter's, or none
  std::int64_t begin = 0;
  at::Tensor values;  // [count]; the optimizer's own memory: who writes to it changes the optimizer
};

// The boxes that the parts are made of, without copying. They point into the parts' tensors.
std::vector<SavedBox> saved_boxes(std::span<const StatePart> parts);
// The whole tensors that the parts are of, for CheckpointReader::expect().
std::vector<ExpectedTensor> expected_tensors(std::span<const StatePart> parts);
// Fills the parts' tensors. The error names the first that the checkpoint does not have, or has in another shape, or
// that counts steps and is no number of steps.
Status read_state(const CheckpointReader& reader, std::span<const StatePart> parts);
// Whether the parts that count steps, filled from this checkpoint, are numbers of steps.
Status check_steps(const CheckpointReader& reader, std::span<const StatePart> parts);

// The boxes, in row-major order, that elements [begin, begin + count) of a tensor of this shape are made of: at most
// two for each dimension, less one.
std::vector<TensorBox> boxes_of_run(const TensorShape& shape, std::uint64_t begin, std::uint64_t count);

// Copies what `from` has of each part of `to`. Throws an Exception that names the first part of which it has not all.
void copy_state(std::span<const StatePart> from, std::span<const StatePart> to);

}  // namespace tutti
