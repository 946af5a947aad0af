#include "tutti/parallel/tensor/gelu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tutti/base/kernels/elementwise.h"

namespace tutti {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kGeluGrain = std::int64_t(1) << 15;  // numbers that are worth a thread

struct GeluNode : torch::autograd::Function<GeluNode> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given) {
    const at::Tensor x = given.contiguous(), y = at::empty_like(x);
    context->save_for_backward({x});
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gelu_tanh", [&] {
      const scalar_t* const from = x.data_ptr<scalar_t>();
      scalar_t* const to = y.data_ptr<scalar_t>();
      at::parallel_for(0, x.numel(), kGeluGrain, [&](std::int64_t begin, std::int64_t end) {
        gelu_values(from + begin, to + begin, std::size_t(end - begin));
      });
    });
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor x = context->get_saved_variables()[0], of_y = gradients[0].contiguous();
    // With create_graph the gradient shall have a gradient itself, which LibTorch's has.
    if (c10::GradMode::is_enabled()) return {at::gelu_backward(of_y, x, "tanh")};
    const at::Tensor of_x = at::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gelu_tanh", [&] {
      const scalar_t *const at = x.data_ptr<scalar_t>(), *const from = of_y.data_ptr<scalar_t>();
      scalar_t* const to = of_x.data_ptr<scalar_t>();
      at::parallel_for(0, x.numel(), kGeluGrain, [&](std::int64_t begin, std::int64_t end) {
        gelu_gradient(at + begin, from + begin, to + begin, std::size_t(end - begin));
      });
    });
    return {of_x};
  }
};

}  // namespace

at::Tensor gelu_tanh(const at::Tensor& x) {
  const bool ours = x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble;
  return ours && x.device().is_cpu() ? GeluNode::apply(x) : at::gelu(x, "tanh");
}

}  // namespace tutti
