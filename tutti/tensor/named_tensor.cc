// LibTorch's C++ parameters() and named_parameters() differ from Python's in one respect: a parameter that two
// submodules share is listed twice.
#include "tutti/tensor/named_tensor.h"

#include <torch/nn/module.h>

#include <unordered_set>

namespace tutti {
namespace {

void append(std::vector<NamedTensor>& tensors, const torch::OrderedDict<std::string, at::Tensor>& items) {
  for (const auto& item : items) {
    if (item.value().defined()) tensors.push_back({item.key(), item.value()});
  }
}

class Seen {
 public:
  bool again(const at::Tensor& tensor) { return !tensors_.insert(tensor.unsafeGetTensorImpl()).second; }

 private:
  std::unordered_set<const c10::TensorImpl*> tensors_;
};

}  // namespace

std::vector<NamedTensor> parameters_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> tensors;
  append(tensors, module.named_parameters());
  return tensors;
}

std::vector<NamedTensor> buffers_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> tensors;
  append(tensors, module.named_buffers());
  return tensors;
}

std::vector<NamedTensor> tensors_of(const torch::nn::Module& module) {
  auto tensors = parameters_of(module);
  append(tensors, module.named_buffers());
  return tensors;
}

std::vector<NamedTensor> without_repeats(std::vector<NamedTensor> tensors) {
  Seen seen;
  std::erase_if(tensors, [&](const NamedTensor& named) { return seen.again(named.tensor); });
  return tensors;
}

std::vector<at::Tensor> without_repeats(std::vector<at::Tensor> tensors) {
  Seen seen;
  std::erase_if(tensors, [&](const at::Tensor& tensor) { return seen.again(tensor); });
  return tensors;
}

}  // namespace tutti
