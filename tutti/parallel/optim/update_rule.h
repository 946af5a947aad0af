#pragma once
// What the optimizers do to a weight, as values: the options of a rule say everything about it. Formulas, defaults and
// the names of states are those of torch.optim. Every rule but Muon acts on each element alone, so it may be applied to
// any part of a parameter, on any rank, with the same bits.
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

// Chen et al., 2023: the sign of an average, so every element moves by lr. w *= 1 - lr * weight_decay;
// w -= lr * sign(beta1 * m + (1 - beta1) * g); m = beta2 * m + (1 - beta2) * g
struct LionOptions {
  double lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;
};

// Jordan et al., 2024, as torch.optim.Muon: m = momentum * m + (1 - momentum) * g; u = nesterov ? momentum * m +
// (1 - momentum) * g : m; w *= 1 - lr * weight_decay; w -= lr * sqrt(max(1, rows / columns)) * orthogonal(u), where
// orthogonal() takes ns_steps steps of Newton and Schulz's iteration towards the nearest orthogonal matrix. It is
// computed in the parameter's type. For matrices alone (matrix_rule.h).
struct MuonOptions {
  double lr = 1e-3;
  double momentum = 0.95;
  double weight_decay = 0.1;
  bool nesterov = true;
  int ns_steps = 5;
  double eps = 1e-7;
};

using UpdateRule = std::variant<SgdOptions, AdamOptions, AdamWOptions, AdagradOptions, LionOptions, MuonOptions>;

// "Sgd", "Adam", "AdamW", "Adagrad", "Lion", "Muon"
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

// The update in a parameter's step number `step`, counted from 1. State tensors are in the order of state_kinds(). Of
// rules that act on each element alone.
Update update_in_step(const UpdateRule& rule, std::int64_t step);

}  // namespace tutti
