// The model and the data of the tutorial: plain LibTorch, without Tutti.
#pragma once
#include <torch/torch.h>

#include <cstdint>
#include <vector>

// Points on three arms of a spiral. The label of a point is its arm: 0, 1 or 2.
struct Spirals {
  torch::Tensor x, y;  // f32[size, 2], i64[size]

  Spirals(std::int64_t size, std::uint64_t seed) {
    auto random = at::make_generator<at::CPUGeneratorImpl>(seed);
    y = torch::arange(size) % 3;
    const auto t = torch::rand({size}, random);
    const auto angle = 6 * t + 2.0944 * y + 0.2 * torch::randn({size}, random);
    x = torch::stack({t * angle.cos(), t * angle.sin()}, 1);
  }
  std::int64_t size() const { return y.size(0); }

  struct Batch {
    torch::Tensor x, y;
  };
  Batch batch(const std::vector<std::int64_t>& samples) const {
    const auto rows = torch::tensor(samples);
    return {x.index_select(0, rows), y.index_select(0, rows)};
  }
};

struct Net : torch::nn::Module {
  torch::nn::Linear in{2, 64}, middle{64, 64}, out{64, 3};

  Net() {
    register_module("in", in);
    register_module("middle", middle);
    register_module("out", out);
  }
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::relu(middle(torch::relu(in(x))))); }
};
