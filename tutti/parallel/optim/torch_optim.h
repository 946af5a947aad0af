#pragma once
// The state of an optimizer of torch::optim in a checkpoint. Its tensors have the names of the module's parameters and
// of PyTorch's state ("exp_avg"), so tutti::Adam, AdamW and Adagrad load what it saves, and the other way round.
//
//   torch::optim::AdamW adam(model->parameters(), 1e-3);
//   tutti::TorchOptim optimizer(*model, adam);
//   checkpoints.add("optimizer", optimizer);
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
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

struct ShardPlace;

// One thread. The learning rate and other options are not saved: they are those of the program.
class TorchOptim {
 public:
  // `optimizer` has to outlive this. It is an SGD without dampening, Adam, AdamW, Adagrad or RMSprop, over parameters
  // of the module that every rank has as a whole, or over the shards that FullySharded has of them. Throws Exception:
  // kUnsupported for another optimizer, kInvalidArgument for a parameter that is not the module's.
  TorchOptim(const torch::nn::Module& module, torch::optim::Optimizer& optimizer);

  // State tensors that no step has made yet are made (by the constructor too), with the values that the first step
  // begins with. SGD counts no steps: it loads a checkpoint of tutti::Sgd, but tutti::Sgd does not load its.
  void state(StateDict& dict);

 private:
  struct Parameter;
  std::vector<Parameter> parameters() const;  // with their state, in the optimizer's order

  torch::optim::Optimizer& optimizer_;
  std::map<const c10::TensorImpl*, std::string> names_;
  std::map<const c10::TensorImpl*, std::shared_ptr<const ShardPlace>> shards_;
  std::vector<at::Tensor> steps_;  // of each parameter, as checkpoints have them; torch::optim has plain numbers
};

}  // namespace tutti
