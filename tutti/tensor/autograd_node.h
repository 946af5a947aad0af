#pragma once
// A node of an autograd graph with a state of its own, on top of torch::autograd::Function. An operation has a name for
// errors, a state, and the two directions:
//
//   struct ScaleNode {
//     static constexpr const char* kName = "scale";
//     using State = double;
//     static at::Tensor forward(AutogradContext*, double& factor, const at::Tensor& x) { return x * factor; }
//     static variable_list backward(AutogradContext*, double& factor, const variable_list& gradients) {
//       return {gradients[0] * factor};  // one for each tensor that forward() takes
//     }
//   };
//   at::Tensor y = autograd::apply_node<ScaleNode>(0.5, x);
//
// The node owns the state, from forward() until the graph goes. Two constants change what the node does:
//
// - `kAnchored = true`: the node is in the graph of every rank, even where no input requires a gradient. Backward then
//   makes the same collective calls on all ranks. The means is an input without elements that requires a gradient.
// - `kTwiceDifferentiable = true`: what backward() computes has a derivative, or backward() rejects on its own. Without
//   it a backward pass with create_graph throws an Exception (kUnsupported) that names the operation.
#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tuple>
#include <utility>

#include "tutti/base/error.h"

namespace tutti::autograd {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Throws if backward runs with create_graph.
inline void reject_second_derivative(const char* name) {
  if (c10::GradMode::is_enabled())
    throw Exception(Error{
        .code = Code::kUnsupported,
        .detail = std::string(name) + " has no second derivative, and backward() was asked for one (create_graph)"});
}

template <class Op>
struct Node : torch::autograd::Function<Node<Op>> {
  static constexpr bool kAnchored = requires { requires Op::kAnchored; };
  static constexpr bool kTwiceDifferentiable = requires { requires Op::kTwiceDifferentiable; };

  // IValues, which hold the data of a node, hold objects of this kind.
  struct Capsule : torch::CustomClassHolder {
    explicit Capsule(typename Op::State&& of) : state(std::move(of)) {}
    typename Op::State state;
  };
  using CapsulePtr = c10::intrusive_ptr<Capsule>;

  // With an anchor, `inputs` ends with it.
  template <class... Inputs>
  static auto forward(AutogradContext* context, const CapsulePtr& capsule, const Inputs&... inputs) {
    context->saved_data[kState] = c10::IValue::make_capsule(capsule);
    return [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>, const std::tuple<const Inputs&...>& all) {
      return Op::forward(context, capsule->state, std::get<kIndex>(all)...);
    }
    (std::make_index_sequence<sizeof...(Inputs) - (kAnchored ? 1 : 0)>(), std::tie(inputs...));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (!kTwiceDifferentiable) reject_second_derivative(Op::kName);
    const auto capsule = c10::static_intrusive_pointer_cast<Capsule>(context->saved_data[kState].toCapsule());
    variable_list results = Op::backward(context, capsule->state, gradients);
    results.insert(results.begin(), at::Tensor());  // the capsule
    if (kAnchored) results.emplace_back();
    return results;
  }

 private:
  static constexpr char kState[] = "state";
};

// Op::forward(context, state, inputs...), as a node if an input requires a gradient or the operation is anchored, and
// gradients are on.
template <class Op, class... Inputs>
auto apply_node(typename Op::State state, const Inputs&... inputs) {
  const auto capsule = c10::make_intrusive<typename Node<Op>::Capsule>(std::move(state));
  if constexpr (Node<Op>::kAnchored) {
    return Node<Op>::apply(capsule, inputs..., at::empty({0}, at::kFloat).requires_grad_());
  } else {
    return Node<Op>::apply(capsule, inputs...);
  }
}

}  // namespace tutti::autograd
