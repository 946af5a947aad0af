// A collective sends values to other ranks, so the gradient of its input is made of the gradients that other ranks have
// for its output. Every verb here is a linear map on the inputs of all ranks taken together, and the gradient goes
// through the transposed map, which is a verb again: what was gathered is scattered, what was told to all is summed up.
// A Pair is such a map with its transpose. As the transpose of the transpose is the map itself, backward is nothing but
// the same node with the pair exchanged, and so has a derivative of its own.
//
// Ranks must make the same calls in the same order in backward too. Two things see to that:
//
// - The anchor. A node is put into the graph only if one of its inputs requires a gradient, which is a matter of the
//   rank: one without parameters of its own before an all_to_all would have no node, and the others would wait for it.
//   So every node has a second input, a tensor without elements that requires a gradient.
// - The order of autograd's engine. Among the nodes that are ready it takes the one that was made last (by a number
//   that each thread counts up). A node that could be ready later was made before the nodes that it waits for. So the
//   nodes run in the exact reverse of the order in which one thread made them.
//
// An asynchronous call is two nodes: Started, made where the call is, and Finished, made at get(). Backward enters
// Finished first, which submits the transposed call; then come the nodes that were made between the two, which is the
// work that was done meanwhile in forward; then Started, which waits. What travels between the two nodes as the
// gradient of the unfinished tensor is a stand-in of its shape, one zero seen from everywhere.
#include "tutti/tensor/autograd_nodes.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "tutti/tensor/collectives.h"

namespace tutti::autograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Autograd keeps its nodes' data in IValues, which hold such objects.
struct Applied : torch::CustomClassHolder {
  Applied(const Group& on, const Pair& what, CallSite where) : group(on), pair(what), at(where) {}
  Group group;
  Pair pair;
  CallSite at;
};
using AppliedPtr = c10::intrusive_ptr<Applied>;

struct Exchange : Applied {
  using Applied::Applied;
  TensorWork work;  // in forward, and then in backward
  Call call;
};
using ExchangePtr = c10::intrusive_ptr<Exchange>;

constexpr char kData[] = "tutti";

template <class T>
void keep(AutogradContext* context, const c10::intrusive_ptr<T>& data) {
  context->saved_data[kData] = c10::IValue::make_capsule(data);
}
template <class T>
c10::intrusive_ptr<T> kept(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<T>(context->saved_data[kData].toCapsule());
}

// The spans of a request may refer to the vectors of a call that has moved since.
Request request_of(const Call& call) {
  Request request = *call.request;
  request.in_splits = call.in_splits;
  request.out_splits = call.out_splits;
  return request;
}
at::Tensor result_of(const Call& call) { return call.finish ? call.finish(call.out) : call.out; }

at::Tensor run(const Applied& applied, const at::Tensor& in) {
  if (!applied.pair.forward) return in;
  const Call call = applied.pair.forward(dense(in));
  if (call.request) applied.group.run(request_of(call), applied.at).or_throw();
  return result_of(call);
}

void submit(Exchange& exchange, Call call) {
  // Not `out` itself, which is about to become part of the graph that holds this.
  call.out = call.out.detach();
  exchange.work = TensorWork(exchange.group.submit(request_of(call), exchange.at), {call.in, call.out});
  exchange.call = std::move(call);
}

at::Tensor anchor() { return at::empty({0}, at::kFloat).requires_grad_(); }
at::Tensor stand_in(at::IntArrayRef sizes, const at::TensorOptions& options) {
  return at::zeros({}, options).expand(sizes);
}

void refuse_second_derivative(const char* what) {
  if (c10::GradMode::is_enabled())
    throw Exception(Error{.code = Code::kUnsupported,
                          .detail = detail::words(what,
                                                  " has no second derivative, and backward() was asked for one "
                                                  "(create_graph)")});
}

struct Node : Function<Node> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& in, const at::Tensor&,
                            const AppliedPtr& applied) {
    keep(context, applied);
    return run(*applied, in);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto applied = kept<Applied>(context);
    const Pair& pair = applied->pair;
    if (pair.without_second) refuse_second_derivative(pair.without_second);
    const auto gradient =
        tutti::autograd::apply(applied->group, gradients[0], {pair.backward, pair.forward}, applied->at);
    return {pair.reads_input ? gradient : at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct Started : Function<Started> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& in, const at::Tensor&,
                            const ExchangePtr& exchange) {
    keep(context, exchange);
    Call call = exchange->pair.forward(dense(in));
    at::Tensor arriving = call.out;
    submit(*exchange, std::move(call));
    return arriving;
  }
  static variable_list backward(AutogradContext* context, const variable_list&) {
    const auto exchange = kept<Exchange>(context);
    exchange->work.get();
    const Call call = std::exchange(exchange->call, {});
    exchange->work = {};
    return {result_of(call), at::Tensor(), at::Tensor()};
  }
};

struct Finished : Function<Finished> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& arriving, const ExchangePtr& exchange) {
    keep(context, exchange);
    exchange->work.get();
    const Call call = std::exchange(exchange->call, {});
    exchange->work = {};
    context->saved_data["sizes"] = arriving.sizes().vec();
    return result_of(call);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto exchange = kept<Exchange>(context);
    refuse_second_derivative("an asynchronous verb");
    submit(*exchange, exchange->pair.backward(dense(gradients[0])));
    return {stand_in(context->saved_data["sizes"].toIntVector(), gradients[0].options()), at::Tensor()};
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
  const auto applied = c10::make_intrusive<Applied>(group, pair, at);
  return records_gradient(in) ? Node::apply(in, anchor(), applied) : run(*applied, in);
}

struct PendingTensor::State {
  ExchangePtr exchange;
  at::Tensor arriving, result;
};

struct PendingTensorAccess {
  static PendingTensor make(ExchangePtr exchange, at::Tensor arriving) {
    PendingTensor pending;
    pending.state_ = std::make_shared<PendingTensor::State>();
    pending.state_->exchange = std::move(exchange);
    pending.state_->arriving = std::move(arriving);
    return pending;
  }
};

PendingTensor start(const Group& group, const at::Tensor& in, const Pair& pair, CallSite at) {
  const auto exchange = c10::make_intrusive<Exchange>(group, pair, at);
  if (records_gradient(in)) return PendingTensorAccess::make(exchange, Started::apply(in, anchor(), exchange));
  submit(*exchange, pair.forward(dense(in)));
  return PendingTensorAccess::make(exchange, exchange->call.out);
}

bool PendingTensor::done() const { return state_ && (state_->result.defined() || state_->exchange->work.done()); }

at::Tensor PendingTensor::get() const {
  TUTTI_REQUIRE(state_ != nullptr, "get() on a PendingTensor that no verb has returned");
  State& state = *state_;
  if (!state.result.defined()) {
    state.result = Finished::apply(state.arriving, state.exchange);
    state.arriving = at::Tensor();
  }
  return state.result;
}

}  // namespace tutti::autograd
