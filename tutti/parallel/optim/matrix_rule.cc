#include "tutti/parallel/optim/matrix_rule.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <variant>

#include "tutti/base/error.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {
namespace {

// The iteration X <- a X + (b A + c A A) X with A = X X^T drives the singular values of X, at most 1 at the start, to
// about 1 (0.7 to 1.2). The factors are those of Jordan's post, chosen to grow small singular values fast. The wide
// form is iterated, since A is then the smaller of the two products.
at::Tensor orthogonal(const at::Tensor& update, int steps, double eps) {
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
  const bool tall = update.size(0) > update.size(1);
  at::Tensor x = tall ? update.t() : update;
  x = x / x.norm().clamp_min(eps);
  for (int step = 0; step < steps; ++step) {
    const at::Tensor product = x.mm(x.t());
    x = at::addmm(x, at::addmm(product, product, product, kB, kC), x, kA);
  }
  return tall ? x.t() : x;
}

}  // namespace

bool needs_matrix(const UpdateRule& rule) { return std::holds_alternative<MuonOptions>(rule); }

void require_matrix(const UpdateRule& rule, const std::string& name, const at::Tensor& parameter) {
  TUTTI_REQUIRE(!needs_matrix(rule) || parameter.dim() == 2, tutti::name(rule), ": parameter ", name, " is ",
                describe(parameter), ", and the rule steps matrices; put parameters of other dimensions into a ",
                "ParameterGroup with another rule, such as AdamWOptions");
}

void require_whole(const UpdateRule& rule, const std::string& name, const at::Tensor& part) {
  TUTTI_REQUIRE(!needs_matrix(rule), tutti::name(rule), ": parameter ", name, " is divided over the tensor group (",
                describe(part), " on this rank), and the rule steps whole matrices; put divided parameters into a ",
                "ParameterGroup with another rule, such as AdamWOptions");
}

void update_matrix(const UpdateRule& rule, const at::Tensor& weight, const at::Tensor& gradient, RuleState& state,
                   double scale, double limit) {
  const auto& o = std::get<MuonOptions>(rule);
  state.step.add_(1);
  at::Tensor g = scale == 1 ? gradient : gradient * scale;
  if (std::isfinite(limit)) g = g.clamp(-limit, limit);
  const at::Tensor momentum = state.tensors[0].as_strided(weight.sizes(), weight.strides());
  momentum.lerp_(g, 1 - o.momentum);
  const at::Tensor update = orthogonal(o.nesterov ? g.lerp(momentum, o.momentum) : momentum, o.ns_steps, o.eps);
  const double longer = std::sqrt(std::max(1.0, double(weight.size(0)) / double(weight.size(1))));
  weight.mul_(1 - o.lr * o.weight_decay).add_(update, -o.lr * longer);
}

}  // namespace tutti
