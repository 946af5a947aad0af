#pragma once
// Small models and helpers for the tests of this folder.
#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/harness/error_of.h"
#include "tests/harness/ranks.h"
#include "tutti/parallel/data_parallel/data_parallel.h"

namespace tutti::test {

// Two branches, of which a step may use one.
class Branches : public torch::nn::Module {
 public:
  explicit Branches(std::int64_t width = 3)
      : left(register_module("left", torch::nn::Linear(width, 2))),
        right(register_module("right", torch::nn::Linear(width, 2))) {}
  at::Tensor forward(const at::Tensor& x, bool use_left = true, bool use_right = true) {
    auto y = at::zeros({x.size(0), 2});
    if (use_left) y = y + left->forward(x);
    if (use_right) y = y + right->forward(x);
    return y;
  }
  torch::nn::Linear left, right;
};

// LibTorch's seed belongs to the process, so models are made before the ranks' threads start.
template <class M, class... Arguments>
std::vector<std::shared_ptr<M>> make_models(int count, Arguments... arguments) {
  std::vector<std::shared_ptr<M>> models;
  for (int i = 0; i < count; ++i) models.push_back(std::make_shared<M>(arguments...));
  return models;
}

inline const DataParallelOptions kPlain = {};

using test::error_of;
inline void check_says(const std::string& text, const std::string& part) {
  check(text.find(part) != std::string::npos, "\"", text, "\" does not say \"", part, "\"");
}

}  // namespace tutti::test
