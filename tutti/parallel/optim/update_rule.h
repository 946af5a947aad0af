#pragma once
// What the optimizers do to a weight, as values: the options of a rule say everything about it. Formulas, defaults and
// the names of what is kept are those of torch.optim. A rule acts on each element alone, so it may be applied to any
// part of a parameter, by whichever rank, with the same bits.
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/parallel/optim/kernels/update.h"

namespace tutti {

// m = momentum * m + (1 - dampening) * (g + weight_decay * w), in the first step without dampening;
// w -= lr * (nesterov ? g + weight_decay * w + momentum * m : m)
struct SgdOptions {
  double lr = 0.05;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
  double dampening = 0;
};

// Kingma and Ba, 2015; weight decay is added to the gradient. amsgrad: Reddi et al., 2018.
struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
};

// The same, but weight decay shrinks the weight: w *= 1 - lr * weight_decay (Loshchilov and Hutter, 2019).
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
};

// Duchi et al., 2011: sum += g * g; w -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(sum) + eps)
struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
};

using UpdateRule = std::variant<SgdOptions, AdamOptions, AdamWOptions, AdagradOptions>;

// "Sgd", "Adam", "AdamW", "Adagrad"
const char* name(const UpdateRule& rule);
// With all options: "Sgd, lr 0.05, momentum 0.9, ..."
std::string to_string(const UpdateRule& rule);
// kInvalidArgument names the option that is out of its range.
Status check(const UpdateRule& rule);
double learning_rate(const UpdateRule& rule);
void set_learning_rate(UpdateRule& rule, double lr);
double weight_decay(const UpdateRule& rule);
void set_weight_decay(UpdateRule& rule, double decay);

// What is kept for each element of a weight, in its type: "exp_avg", 0.
struct StateKind {
  const char* name;
  double initial;
};
std::vector<StateKind> state_kinds(const UpdateRule& rule);

// The update in a parameter's step number `step`, counted from 1. State tensors are in the order of state_kinds().
Update update_in_step(const UpdateRule& rule, std::int64_t step);

}  // namespace tutti
