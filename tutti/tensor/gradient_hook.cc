#include "tutti/tensor/gradient_hook.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <memory>
#include <utility>

namespace tutti {
namespace {

class AfterNode final : public torch::autograd::FunctionPostHook {
 public:
  explicit AfterNode(std::function<void()> act) : act_(std::move(act)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    act_();
    return outputs;
  }

 private:
  std::function<void()> act_;
};

}  // namespace

compat::AccumulatorPtr after_gradient(const at::Tensor& leaf, std::function<void()> act) {
  auto accumulator = torch::autograd::impl::grad_accumulator(leaf);
  accumulator->add_post_hook(std::make_unique<AfterNode>(std::move(act)));
  return accumulator;
}

}  // namespace tutti
