#pragma once
// Blocks as one module, and what is wrong with what a program gave: for measure_blocks.cc and parallelize.cc.
#include <torch/nn/module.h>

#include <span>
#include <vector>

#include "tutti/parallel/parallelize.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti::parallel {

struct BlocksModule : torch::nn::Module {
  explicit BlocksModule(std::span<const Block> blocks) {
    for (const Block& block : blocks)
      if (block.module) register_module(block.name, block.module);
  }
};

// Type and device of the parameters: what travels between blocks has them too.
inline at::TensorOptions options_of(std::span<const Block> blocks) {
  for (const NamedTensor& parameter : parameters_of(BlocksModule(blocks)))
    if (parameter.tensor.is_floating_point()) return parameter.tensor.options().requires_grad(false);
  return at::kFloat;
}
inline at::ScalarType type_of(std::span<const Block> blocks) {
  return c10::typeMetaToScalarType(options_of(blocks).dtype());
}

// Whether every block has a function, and a name of its own without a dot.
Status check_names(const std::vector<Block>& blocks);
// Whether there are as many inputs as targets, and at least one.
Status check_batch(const at::Tensor& inputs, const at::Tensor& targets);

}  // namespace tutti::parallel
