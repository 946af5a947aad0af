#include "tutti/parallel/pipeline/graph_end.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace tutti {

GraphEnd::GraphEnd(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.requires_grad()) edge_ = torch::autograd::impl::gradient_edge(tensor);
}

void GraphEnd::backward(const at::Tensor& gradient) && {
  torch::autograd::Engine::get_default_engine().execute({std::exchange(edge_, {})}, {gradient}, /*keep_graph=*/false,
                                                        /*create_graph=*/false, /*accumulate_grad=*/true);
}

}  // namespace tutti
