#pragma once
// Where a tensor stands in the autograd graph, without the tensor: backward can be run from there when its memory is
// long gone. (Megatron-LM shrinks the output to one element and calls the engine past its checks of shapes; here there
// is no tensor left.)
#include <memory>

namespace at {
class Tensor;
}

namespace torch::autograd {
struct Edge;  // its header is the whole of autograd's since LibTorch 2
}

namespace tutti {

class GraphEnd {
 public:
  GraphEnd() = default;                         // of nothing: requires_grad() is false
  explicit GraphEnd(const at::Tensor& tensor);  // keeps the graph behind it alive
  bool requires_grad() const { return edge_ != nullptr; }
  // Adds to .grad of all leaves, and frees the graph. `gradient`: of the size and type of the tensor.
  void backward(const at::Tensor& gradient) &&;

 private:
  std::shared_ptr<torch::autograd::Edge> edge_;  // null: no gradient flows here
};

}  // namespace tutti
