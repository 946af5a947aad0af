#pragma once
// Stochastic gradient descent with momentum in one pass over weight, gradient and momentum, where torch::optim::SGD
// makes three. The same formula: m = momentum * m + (g + weight_decay * w); w -= lr * (nesterov ? g + momentum * m :
// m).
#include <memory>
#include <vector>

namespace at {
class Tensor;
}

namespace tutti {

struct SgdOptions {
  double lr = 0.05;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

// Takes f32 and f64 parameters on the CPU; one that is listed twice (a tied weight) is one. Not thread-safe.
class Sgd {
 public:
  Sgd(std::vector<at::Tensor> parameters, SgdOptions options);
  ~Sgd();
  // Parameters without a gradient are left alone.
  void step();
  // Lets gradients go (sets them to none): the next backward() then makes fresh ones, which costs less than zeros and
  // an addition.
  void zero_grad();
  double lr() const { return options_.lr; }
  void set_lr(double lr) { options_.lr = lr; }
  // Bytes of momentum that are kept.
  std::size_t state_bytes() const;

 private:
  SgdOptions options_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> momentum_;  // undefined before a parameter's first step
};

}  // namespace tutti
