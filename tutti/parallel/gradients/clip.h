#pragma once
// Gradient clipping of `.grad`, which must be the average already: after DataParallel::finish(), for optimizers that
// are not Tutti's. Optimizer and ShardedOptimizer have functions of their own, which clip within the pass of the step.
#include <span>
#include <vector>

#include "tutti/parallel/gradients/findings.h"

namespace torch::nn {
class Module;
}

namespace tutti {

struct NamedTensor;

GradientNorm gradient_norm(std::span<const NamedTensor> parameters);
// What this rank's gradients are in a norm over ranks (norm_over_ranks()), settled. `elsewhere`: by parameter, whether
// another rank counts it; empty: none.
GradientFindings gradient_findings(std::span<const NamedTensor> parameters, const std::vector<bool>& elsewhere = {});

// Scales all gradients by max_norm / (norm + 1e-6) if that is less than one (torch.nn.utils.clip_grad_norm_). Where the
// norm is not finite they are left alone. Throws for a max_norm that is negative or not a number. One pass reads, a
// second writes where there is something to clip. f32 and f64; parameters without a gradient count for nothing.
GradientNorm clip_grad_norm(std::span<const NamedTensor> parameters, double max_norm);
GradientNorm clip_grad_norm(const torch::nn::Module& module, double max_norm);
// Clamps every element to +-limit. Throws for a limit that is negative or not a number.
void clip_grad_value(std::span<const NamedTensor> parameters, double limit);
void clip_grad_value(const torch::nn::Module& module, double limit);

// What gradients of this norm are multiplied by.
double clip_factor(double norm, double max_norm);
// Throws: "clip_grad_norm: max_norm is -1; expected ..."
void require_clip_limit(const char* function, const char* name, double value);

}  // namespace tutti
