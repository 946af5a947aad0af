#pragma once
// Rules that see a whole matrix, where others see one element. An Optimizer applies them to parameters of two
// dimensions; other parameters need a ParameterGroup with another rule:
//
//   const auto others = tutti::names_of(*model, [](const auto&, const at::Tensor& p) { return p.dim() != 2; });
//   tutti::Muon optimizer(*model, {.lr = 0.02}, {{.names = others, .rule = tutti::AdamWOptions{.lr = 3e-4}}});
//
// Sharded optimizers cut parameters by elements, so they reject these rules. An Optimizer of a module rejects them for
// parameters that are divided over a tensor group. One of a list of tensors cannot see that: give it whole matrices.
#include <ATen/core/Tensor.h>

#include <string>

#include "tutti/parallel/optim/rule_state.h"

namespace tutti {

bool needs_matrix(const UpdateRule& rule);
// Throws Exception unless the parameter is a matrix, where the rule needs one.
void require_matrix(const UpdateRule& rule, const std::string& name, const at::Tensor& parameter);
// Throws Exception where the rule needs a whole matrix. `part`: what this rank has of the parameter.
void require_whole(const UpdateRule& rule, const std::string& name, const at::Tensor& part);

// Steps a weight: f32 or f64, of any strides without holes. The gradient has the weight's strides; it is multiplied by
// `scale`, then clamped to +-limit. `state` is prepared.
void update_matrix(const UpdateRule& rule, const at::Tensor& weight, const at::Tensor& gradient, RuleState& state,
                   double scale, double limit);

}  // namespace tutti
