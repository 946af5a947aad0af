#pragma once
// Where a tensor stands in the autograd graph, without the tensor: backward can be run from there when its memory is
// long gone. (Megatron-LM shrinks the output to one element and calls the engine past its checks of shapes; here there
// is no tensor left.)
#include <torch/csrc/autograd/edge.h>

namespace at {
class Tensor;
}

namespace tutti {

class GraphEnd {
 public:
  GraphEnd() = default;                         // of nothing: requires_grad() is false
  explicit GraphEnd(const at::Tensor& tensor);  // keeps the graph behind it alive
  bool requires_grad() const { return edge_.is_valid(); }
  // Adds to .grad of all leaves, and frees the graph. `gradient`: of the size and type of the tensor.
  void backward(const at::Tensor& gradient) &&;

 private:
  torch::autograd::Edge edge_;
};

}  // namespace tutti
