#pragma once
// A stack of small layers for tests, the same numbers on every rank, and what one process makes of it.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <vector>

#include "tutti/parallel/pipeline/pipeline.h"
#include "tutti/tensor/weight_gradients.h"

namespace tutti::test {

// x w, which puts the gradient of w off where somebody takes it.
struct PutOffProduct : torch::autograd::Function<PutOffProduct> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& w) {
    context->save_for_backward({x, w});
    return x.matmul(w);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor x = saved[0], w = saved[1], g = gradients[0];
    const auto of_weight = [=] { return x.t().matmul(g); };
    if (WeightGradients* const later = WeightGradients::current()) {
      later->put([=] {
        const c10::AutoGradMode off(false);
        at::Tensor& sum = w.mutable_grad();
        sum = sum.defined() ? sum.add(of_weight()) : of_weight();
      });
      return {g.matmul(w.t()), at::Tensor()};
    }
    return {g.matmul(w.t()), of_weight()};
  }
};

struct StackOptions {
  int layers = 1;
  bool widens = false;    // each layer's output is wider than its input
  bool put_off = false;   // of every second layer
  std::int64_t rows = 2;  // of a microbatch
};

class Stack {
 public:
  explicit Stack(const StackOptions& options) : options_(options) {
    for (int i = 0; i < options.layers; ++i)
      weights_.push_back(
          (values({width(i), width(i + 1)}, 1 + i) * (1.7 / std::sqrt(double(width(i))))).requires_grad_());
  }
  std::int64_t width(int layer) const { return options_.widens ? 3 + layer : 4; }
  at::Tensor data(int microbatch) const { return values({options_.rows, width(0)}, 100 + microbatch); }
  at::Tensor layer(int i, const at::Tensor& x) const {
    const at::Tensor& w = weights_[std::size_t(i)];
    return at::tanh(options_.put_off && i % 2 == 0 ? PutOffProduct::apply(x, w) : x.matmul(w));
  }
  // The layers [begin, end) as a stage: the first one reads its data, the last one ends in a loss.
  at::Tensor stage(int begin, int end, int microbatch, const at::Tensor& input) const {
    at::Tensor x = begin == 0 ? data(microbatch) : input;
    for (int i = begin; i < end; ++i) x = layer(i, x);
    return end == options_.layers ? (x - values(x.sizes(), 200 + microbatch)).square().mean() : x;
  }
  const at::Tensor& weight(int i) const { return weights_[std::size_t(i)]; }

  // Losses of one process that does it all; gradients are then in the weights.
  std::vector<double> alone(int microbatches, const StepOptions& step = {}) const {
    std::vector<double> losses;
    for (int m = 0; m < microbatches; ++m) {
      const at::Tensor loss = stage(0, options_.layers, m, {});
      losses.push_back(loss.item<double>());
      (loss * step.scale * (step.weights.empty() ? 1.0 / microbatches : step.weights[std::size_t(m)])).backward();
    }
    return losses;
  }

  // Numbers between -1 and 1 that look drawn.
  static at::Tensor values(at::IntArrayRef sizes, int seed) {
    std::int64_t count = 1;
    for (const std::int64_t size : sizes) count *= size;
    return at::frac(at::sin(at::arange(count, at::kDouble) * 12.9898 + seed * 78.233) * 43758.5453).reshape(sizes);
  }

 private:
  StackOptions options_;
  std::vector<at::Tensor> weights_;
};

// This rank's chunks of a schedule, `layers` layers a stage.
inline std::vector<Chunk> chunks_of(const Stack& stack, const Schedule& schedule, int rank, int layers = 1) {
  std::vector<Chunk> chunks;
  for (int c = 0; c < schedule.shape.chunks; ++c) {
    const int stage = schedule.stage_of(rank, c);
    chunks.push_back([&stack, stage, layers](int microbatch, const at::Tensor& input) {
      return stack.stage(stage * layers, (stage + 1) * layers, microbatch, input);
    });
  }
  return chunks;
}

}  // namespace tutti::test
