#pragma once
// What torch.optim keeps, as torch.save() wrote optimizer.state_dict(): there parameters are numbers, in the order in
// which the optimizer was given them; here they get their names.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tutti/checkpoint/open.h"

namespace tutti {

struct TorchOptimizerOptions {
  std::string optimizer;  // where its state_dict is in the file: "optimizer", "state.optimizers.0"
  std::string model;      // and that of the model: "model"; empty: the file is nothing else
  // Names in the optimizer's order. Empty: those that it says itself (of PyTorch 2.6 and later, if they were given),
  // else, of one group of parameters, those of the model's state_dict in its order, without what batch normalisation
  // counts.
  std::vector<std::string> parameters;
  std::int64_t step = 0;  // how many it has made, where it does not say (Sgd)
};

struct TorchOptimizer {
  std::map<TensorKey, TensorKey> tensors;     // ("fc.weight", "exp_avg"): which tensor of the file that is
  std::map<TensorKey, std::int64_t> numbers;  // ("fc.weight", "step"): 5
  CheckpointValues values;                    // "optimizer.param_groups.0.lr": 0.001
};

// kNotFound: there is no such state_dict; kMismatch: numbers and names do not go together, with both, or are of several
// groups without names.
Result<TorchOptimizer> read_torch_optimizer(const TensorSource& source, const TorchOptimizerOptions& options);

// Where in the file there is what looks like an optimizer's state_dict; empty: nowhere.
std::string find_torch_optimizer(const TensorSource& source);

}  // namespace tutti
