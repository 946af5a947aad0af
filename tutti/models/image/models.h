#pragma once
// Two small classifiers of 28 x 28 grey pictures. Names of parameters, order of construction and initial values are
// those of the Python modules with the same layers, so a seed gives the same weights in both and saved weights fit
// either.
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>

namespace tutti {

// Pictures f32[batch, 1, 28, 28] to log-probabilities f32[batch, 10].
class ImageModel : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& pictures) = 0;
};

// The network of PyTorch's MNIST example, 1.2 M parameters: conv1, conv2, fc1, fc2. `dropout` (there 0.25 and 0.5) is
// the probability before fc1 and before fc2.
class Cnn final : public ImageModel {
 public:
  explicit Cnn(double dropout = 0);
  at::Tensor forward(const at::Tensor& pictures) override;

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear fc1_, fc2_;
  double dropout_;
};

// 784-4096-4096-10, 20 M parameters: "1", "3" and "5" of a Python nn.Sequential; `dropout` after both hidden layers.
class Mlp final : public ImageModel {
 public:
  explicit Mlp(double dropout = 0);
  at::Tensor forward(const at::Tensor& pictures) override;

 private:
  torch::nn::Linear hidden1_, hidden2_, output_;
  double dropout_;
};

// "cnn" or "mlp", drawn from torch::manual_seed(seed). Throws Exception for another name.
std::shared_ptr<ImageModel> make_image_model(const std::string& name, std::uint64_t seed, double dropout = 0);

}  // namespace tutti
