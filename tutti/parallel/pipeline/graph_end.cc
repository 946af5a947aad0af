#include "tutti/parallel/pipeline/graph_end.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace tutti {

GraphEnd::GraphEnd(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.requires_grad()) return;
  edge_ = std::make_shared<torch::autograd::Edge>(torch::autograd::impl::gradient_edge(tensor));
}

void GraphEnd::backward(const at::Tensor& gradient) && {
  const std::shared_ptr<torch::autograd::Edge> edge = std::move(edge_);
  torch::autograd::Engine::get_default_engine().execute({std::move(*edge)}, {gradient}, /*keep_graph=*/false,
                                                                /*create_graph=*/false, /*accumulate_grad=*/true);
}

}  // namespace tutti
