#include "tutti/models/image/models.h"

#include <ATen/Functions.h>

#include "tutti/base/error.h"

namespace tutti {
namespace {

at::Tensor dropped(const at::Tensor& x, double dropout, bool training) {
  return dropout > 0 ? at::dropout(x, dropout, training) : x;
}

}  // namespace

Cnn::Cnn(double dropout)
    : conv1_(register_module("conv1", torch::nn::Conv2d(1, 32, 3))),
      conv2_(register_module("conv2", torch::nn::Conv2d(32, 64, 3))),
      fc1_(register_module("fc1", torch::nn::Linear(9216, 128))),
      fc2_(register_module("fc2", torch::nn::Linear(128, 10))),
      dropout_(dropout) {}

at::Tensor Cnn::forward(const at::Tensor& pictures) {
  auto x = at::relu(conv2_->forward(at::relu(conv1_->forward(pictures))));
  x = dropped(at::flatten(at::max_pool2d(x, 2), 1), dropout_, is_training());
  x = dropped(at::relu(fc1_->forward(x)), dropout_, is_training());
  return at::log_softmax(fc2_->forward(x), 1);
}

Mlp::Mlp(double dropout)
    : hidden1_(register_module("1", torch::nn::Linear(784, 4096))),
      hidden2_(register_module("3", torch::nn::Linear(4096, 4096))),
      output_(register_module("5", torch::nn::Linear(4096, 10))),
      dropout_(dropout) {}

at::Tensor Mlp::forward(const at::Tensor& pictures) {
  auto x = dropped(at::relu(hidden1_->forward(at::flatten(pictures, 1))), dropout_, is_training());
  x = dropped(at::relu(hidden2_->forward(x)), dropout_, is_training());
  return at::log_softmax(output_->forward(x), 1);
}

std::shared_ptr<ImageModel> make_image_model(const std::string& name, std::uint64_t seed, double dropout) {
  at::manual_seed(seed);
  if (name == "cnn") return std::make_shared<Cnn>(dropout);
  if (name == "mlp") return std::make_shared<Mlp>(dropout);
  throw Exception(invalid_argument("there is no image model \"" + name + "\"", "known are cnn and mlp"));
}

}  // namespace tutti
