#pragma once
// Which parameters belong to which block of a model.
#include <string>
#include <vector>

#include "tutti/tensor/named_tensor.h"

namespace tutti::fully_sharded {

struct BlockParameters {
  std::string name;                           // of the module; "" is the root
  const torch::nn::Module* module = nullptr;  // of the root: the model
  std::vector<NamedTensor> parameters;        // under their names in the model, each once
};

// The root, then the modules that a pattern names, in the order of registration. A parameter of one block alone is its
// own; all others are the root's: those outside of all blocks, and those that are registered in several places that do
// not lie in one block. Throws Exception: a pattern that no module has, a block inside another.
std::vector<BlockParameters> block_parameters(const torch::nn::Module& model, const std::vector<std::string>& patterns);

}  // namespace tutti::fully_sharded
