#pragma once
// The state of an optimizer of torch::optim in a checkpoint. It has the names of the module's parameters, and those
// that PyTorch gives to what an optimizer keeps ("exp_avg"); tutti::Adam, AdamW and Adagrad save and load the same.
//
//   torch::optim::AdamW adam(model->parameters(), 1e-3);
//   tutti::TorchOptim optimizer(*model, adam);
//   checkpoints.add("optimizer", optimizer);
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "tutti/checkpoint/state.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace tutti {

// One thread. The learning rate and other options are not saved: they are those of the program.
class TorchOptim {
 public:
  // `optimizer` has to stay: SGD without dampening, Adam, AdamW, Adagrad or RMSprop, over parameters of the module that
  // every rank has as a whole (not those of FullySharded, nor divided ones). Throws Exception: kUnsupported for another
  // optimizer, kInvalidArgument for a parameter that is not the module's.
  TorchOptim(const torch::nn::Module& module, torch::optim::Optimizer& optimizer);

  // What the optimizer keeps for a parameter is made here if no step has made it: zeros, as its first step begins with.
  void state(StateDict& dict);

 private:
  torch::optim::Optimizer& optimizer_;
  std::map<const c10::TensorImpl*, std::string> names_;
  std::vector<at::Tensor> steps_;  // of each parameter, as checkpoints have them; torch::optim has plain numbers
};

}  // namespace tutti
