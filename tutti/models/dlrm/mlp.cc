#include "tutti/models/dlrm/mlp.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tutti/tensor/autograd_node.h"
#include "tutti/tensor/device_region.h"

namespace tutti::dlrm {
namespace {

using autograd::AutogradContext;
using autograd::variable_list;

struct MlpShape {
  std::size_t layers;
  bool sigmoid;
  const char* backward_label;
};

// Inputs: the MLP's, then weight and bias of each layer.
struct MlpNode {
  static constexpr const char* kName = "the MLP of DLRM";
  using State = MlpShape;

  static at::Tensor forward(AutogradContext* context, const MlpShape& mlp, at::TensorList inputs) {
    variable_list saved = inputs.vec();
    at::Tensor x = inputs[0];
    for (std::size_t layer = 0; layer < mlp.layers; ++layer) {
      x = at::addmm(inputs[2 * layer + 2], x, inputs[2 * layer + 1].t());
      mlp.sigmoid&& layer + 1 == mlp.layers ? x.sigmoid_() : x.relu_();
      saved.push_back(x);
    }
    context->save_for_backward(std::move(saved));
    return x;
  }

  static variable_list backward(AutogradContext* context, const MlpShape& mlp, const variable_list& gradients) {
    const DeviceRegion region(mlp.backward_label, gradients[0].device());
    const variable_list saved = context->get_saved_variables();
    const std::size_t parameters = 2 * mlp.layers;
    variable_list results(parameters + 1);
    at::Tensor gradient = gradients[0];
    for (std::size_t layer = mlp.layers; layer-- > 0;) {
      const at::Tensor &output = saved[parameters + 1 + layer], &weight = saved[2 * layer + 1];
      const at::Tensor& input = layer == 0 ? saved[0] : saved[parameters + layer];
      gradient = mlp.sigmoid && layer + 1 == mlp.layers ? at::sigmoid_backward(gradient, output)
                                                        : at::threshold_backward(gradient, output, 0);
      results[2 * layer + 1] = gradient.t().mm(input);
      results[2 * layer + 2] = gradient.sum(0);
      if (layer > 0 || context->needs_input_grad(0)) gradient = gradient.mm(weight);
    }
    if (context->needs_input_grad(0)) results[0] = gradient;
    return results;
  }
};

}  // namespace

Mlp::Mlp(const std::vector<std::int64_t>& sizes, bool sigmoid, Labels labels) : sigmoid_(sigmoid), labels_(labels) {
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i)  // the layers between are the activations
    layers_.push_back(register_module(std::to_string(2 * i), torch::nn::Linear(sizes[i], sizes[i + 1])));
}

at::Tensor Mlp::forward(const at::Tensor& input) {
  const DeviceRegion region(labels_.forward, input.device(),
                            [&] { return fmt::format("[{}]", fmt::join(input.sizes(), ", ")); });
  variable_list inputs = {input};
  for (const auto& layer : layers_) inputs.insert(inputs.end(), {layer->weight, layer->bias});
  return autograd::apply_node<MlpNode>({layers_.size(), sigmoid_, labels_.backward}, at::TensorList(inputs));
}

DenseHalf::DenseHalf(const Architecture& architecture, at::ScalarType type)
    : bottom_(std::make_shared<Mlp>(architecture.bottom, false,
                                    Mlp::Labels{"DLRM bottom nlp forward", "DLRM bottom nlp backward"})),
      top_(std::make_shared<Mlp>(architecture.top, true, Mlp::Labels{"DLRM top nlp forward", "DLRM top nlp backward"})),
      projections_(architecture.features.size()) {
  register_module("bot_l", bottom_);
  register_module("top_l", top_);
  const auto tables = std::make_shared<torch::nn::Module>();
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    const auto& feature = architecture.features[i];
    if (feature.kind != FeatureKind::kProjected) continue;
    const torch::nn::Linear projection(
        torch::nn::LinearOptions(architecture.tables[feature.table].dim, architecture.dim).bias(false));
    tables->register_module(std::to_string(i), std::make_shared<torch::nn::Module>())
        ->register_module("proj", projection);
    projections_[i] = projection->weight;
  }
  register_module("emb_l", tables);
  to(type);
  const at::NoGradGuard no_grad;
  for (const auto& parameter : parameters()) parameter.zero_();
}

at::Tensor DenseHalf::forward(const at::Tensor& dense, const std::function<at::Tensor(const at::Tensor& x)>& interact) {
  return top_->forward(interact(bottom_->forward(dense)));
}

}  // namespace tutti::dlrm
