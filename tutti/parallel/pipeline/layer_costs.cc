#include "tutti/parallel/pipeline/layer_costs.h"

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <limits>

#include "tutti/base/clock.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/pipeline/graph_end.h"

namespace tutti {
namespace {

struct Measured {
  double seconds = std::numeric_limits<double>::infinity();
  at::Tensor output;
};

Measured measure(const LayerFunction& layer, const at::Tensor& before, int repeats) {
  const c10::AutoGradMode on(true);
  Measured measured;
  for (int run = 0; run <= repeats; ++run) {
    at::Tensor input = before.detach();
    if (input.is_floating_point()) input.requires_grad_();
    const auto begin = now();
    const at::Tensor output = layer(input);
    if (GraphEnd end(output); end.requires_grad()) std::move(end).backward(at::ones_like(output.detach()));
    if (run > 0) measured.seconds = std::min(measured.seconds, seconds_since(begin));
    measured.output = output.detach();
  }
  return measured;
}

Status measure_all(std::vector<double>& costs, const std::function<LayerFunction(int)>& make_layer, at::Tensor input,
                   int repeats) {
  for (std::size_t i = 0; i < costs.size(); ++i) {
    try {
      const Measured measured = measure(make_layer(int(i)), input, repeats);
      costs[i] = measured.seconds;
      input = measured.output;
    } catch (const std::exception& error) {
      const std::string text(error.what());
      return Error{
          .code = Code::kAborted,
          .detail = "layer " + std::to_string(i) + " threw while it was measured: " + text.substr(0, text.find('\n'))};
    }
  }
  return {};
}

}  // namespace

std::vector<double> measured_layer_costs(const Group& group, int layers,
                                         const std::function<LayerFunction(int layer)>& make_layer,
                                         const at::Tensor& first_input, int repeats) {
  TUTTI_REQUIRE(layers >= 1 && repeats >= 1, "measured_layer_costs: ", layers, " layers, ", repeats,
                " repeats, expected 1 or more of each");
  std::vector<double> costs(std::size_t(layers), 0.0);
  agree(group, measure_all(costs, make_layer, first_input, repeats)).or_throw();
  all_reduce(group, std::span(costs), ReduceOp::kAvg);
  return costs;
}

}  // namespace tutti
