// A collective sends values to other ranks, so the gradient of its input is made of the gradients that other ranks have
// for its output. Every verb here is a linear map on the inputs of all ranks taken together, and the gradient goes
// through the transposed map, which is a verb again: the transpose of a gather is a scatter, that of a broadcast a sum.
// A Pair is such a map with its transpose. The transpose of the transpose is the map itself. So backward is the same
// node with the pair exchanged, and has a derivative of its own.
//
// Ranks must make the same calls in the same order in backward too. Two things ensure that:
//
// - The anchor (autograd_node.h). Whether an input requires a gradient may differ between ranks. A rank without
//   parameters of its own before an all_to_all would have no node, and the other ranks would wait for it.
// - The order of autograd's engine. Of the nodes that are ready it takes the one that was made last (by a number that
//   each thread counts up). A node that could be ready later was made before the nodes that it waits for. So the nodes
//   run in the exact reverse of the order in which one thread made them.
//
// An asynchronous call is two nodes: a StartNode, made where the call is, and a FinishNode, made at get(). Backward
// runs the FinishNode first, which submits the transposed call. Next come the nodes that were made between the two,
// which overlap with the call as their forward did. Then the StartNode waits for the call. The gradient of the
// unfinished tensor is a stand-in of its shape: one zero, expanded.
#include "tutti/tensor/autograd_nodes.h"

#include <ATen/Functions.h>

#include <memory>
#include <utility>

#include "tutti/tensor/autograd_node.h"
#include "tutti/tensor/collectives.h"

namespace tutti::autograd {
namespace {

struct VerbCall {
  Group group;
  Pair pair;
  CallSite at;
};

struct AsyncCall : VerbCall {
  TensorWork work = {};  // in forward, and then in backward
  PreparedCall call = {};
  std::vector<std::int64_t> sizes = {};  // of the result
};
using AsyncCallPtr = std::shared_ptr<AsyncCall>;

// The spans of a request may refer to the vectors of a call that has moved since.
Request request_of(const PreparedCall& call) {
  Request request = *call.request;
  request.in_splits = call.in_splits;
  request.out_splits = call.out_splits;
  return request;
}
at::Tensor result_of(const PreparedCall& call) { return call.finish ? call.finish(call.out) : call.out; }

at::Tensor run(const VerbCall& verb, const at::Tensor& in) {
  if (!verb.pair.forward) return in;
  const PreparedCall call = verb.pair.forward(dense(in));
  if (call.request) run_on_stream(verb.group, request_of(call), verb.at);
  return result_of(call);
}

void submit(AsyncCall& async, PreparedCall call) {
  // Not `out` itself, which is about to become part of the graph that holds this.
  call.out = call.out.detach();
  async.work = TensorWork(async.group.submit(request_of(call), async.at), {call.in, call.out});
  async.call = std::move(call);
}
at::Tensor result_of(AsyncCall& async) {
  async.work.get_on_stream();
  async.work = {};
  return result_of(std::exchange(async.call, {}));
}

at::Tensor stand_in(at::IntArrayRef sizes, const at::TensorOptions& options) {
  return at::zeros({}, options).expand(sizes);
}

struct VerbNode {
  static constexpr const char* kName = "a verb";
  static constexpr bool kAnchored = true;
  static constexpr bool kTwiceDifferentiable = true;  // backward() rejects where it is not
  using State = VerbCall;

  static at::Tensor forward(AutogradContext*, const VerbCall& verb, const at::Tensor& in) { return run(verb, in); }
  static variable_list backward(AutogradContext*, const VerbCall& verb, const variable_list& gradients) {
    const Pair& pair = verb.pair;
    if (pair.without_second) reject_second_derivative(pair.without_second);
    const auto gradient = tutti::autograd::apply(verb.group, gradients[0], {pair.backward, pair.forward}, verb.at);
    return {pair.reads_input ? gradient : at::Tensor()};
  }
};

struct StartNode {
  static constexpr const char* kName = "an asynchronous verb";
  static constexpr bool kAnchored = true;
  using State = AsyncCallPtr;

  static at::Tensor forward(AutogradContext*, const AsyncCallPtr& async, const at::Tensor& in) {
    PreparedCall call = async->pair.forward(dense(in));
    at::Tensor result = call.out;
    submit(*async, std::move(call));
    return result;
  }
  static variable_list backward(AutogradContext*, const AsyncCallPtr& async, const variable_list&) {
    return {result_of(*async)};
  }
};

struct FinishNode {
  static constexpr const char* kName = StartNode::kName;
  using State = AsyncCallPtr;

  static at::Tensor forward(AutogradContext*, const AsyncCallPtr& async, const at::Tensor& unfinished) {
    async->sizes = unfinished.sizes().vec();
    return result_of(*async);
  }
  static variable_list backward(AutogradContext*, const AsyncCallPtr& async, const variable_list& gradients) {
    submit(*async, async->pair.backward(dense(gradients[0])));
    return {stand_in(async->sizes, gradients[0].options())};
  }
};

}  // namespace

bool records_gradient(const at::Tensor& in) {
  return c10::GradMode::is_enabled() && (in.is_floating_point() || in.is_complex());
}

at::Tensor dense(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided ? tensor.detach().resolve_conj().resolve_neg().contiguous() : tensor;
}

at::Tensor apply(const Group& group, const at::Tensor& in, const Pair& pair, CallSite at) {
  VerbCall verb{group, pair, at};
  return records_gradient(in) ? apply_node<VerbNode>(std::move(verb), in) : run(verb, in);
}

struct PendingTensor::State {
  AsyncCallPtr async;
  at::Tensor unfinished, result;
};

struct PendingTensorAccess {
  static PendingTensor make(AsyncCallPtr async, at::Tensor unfinished) {
    PendingTensor pending;
    pending.state_ =
        std::make_shared<PendingTensor::State>(PendingTensor::State{std::move(async), std::move(unfinished), {}});
    return pending;
  }
};

PendingTensor start(const Group& group, const at::Tensor& in, const Pair& pair, CallSite at) {
  const auto async = std::make_shared<AsyncCall>(AsyncCall{{group, pair, at}});
  if (records_gradient(in)) return PendingTensorAccess::make(async, apply_node<StartNode>(async, in));
  submit(*async, pair.forward(dense(in)));
  return PendingTensorAccess::make(async, async->call.out);
}

bool PendingTensor::done() const { return state_ && (state_->result.defined() || state_->async->work.done()); }

at::Tensor PendingTensor::get() const {
  TUTTI_REQUIRE(state_ != nullptr, "get() on a PendingTensor that no verb has returned");
  State& state = *state_;
  if (!state.result.defined()) {
    state.result = apply_node<FinishNode>(state.async, state.unfinished);
    state.unfinished = at::Tensor();
  }
  return state.result;
}

}  // namespace tutti::autograd
