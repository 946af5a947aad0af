#pragma once
// The tensors of a module, with the names that Python's state_dict() gives them ("conv1.weight").
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace tutti {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// Those of the module and of all its submodules, in the order of registration; never undefined ones. They are the
// module's own tensors, not copies. A tensor that is registered in two places comes twice.
std::vector<NamedTensor> parameters_of(const torch::nn::Module& module);
std::vector<NamedTensor> buffers_of(const torch::nn::Module& module);
// The parameters, then the buffers.
std::vector<NamedTensor> tensors_of(const torch::nn::Module& module);

// A tensor that is listed several times (a tied weight) only once, where it came first.
std::vector<NamedTensor> without_repeats(std::vector<NamedTensor> tensors);
std::vector<at::Tensor> without_repeats(std::vector<at::Tensor> tensors);

}  // namespace tutti
