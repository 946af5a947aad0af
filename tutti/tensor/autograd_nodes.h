#pragma once
// How a verb becomes part of an autograd graph: one node for a blocking call, two for an asynchronous one. For the
// verbs of tensor/autograd_collectives.h.
#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/tensor/autograd_collectives.h"

namespace tutti::autograd {

// One call with its buffers, which must stay until it has ended.
struct PreparedCall {
  std::optional<Request> request;            // none: nothing is sent, `out` is what would have arrived
  at::Tensor in, out;                        // `out` is fresh
  std::vector<std::size_t> in_splits = {};   // which the request refers to; moving them is fine
  std::vector<std::size_t> out_splits = {};  // likewise
  std::function<at::Tensor(const at::Tensor& out)> finish = {};  // from what has arrived to the result
};
using Prepare = std::function<PreparedCall(const at::Tensor& dense)>;

// A map from tensor to tensor, and the one that takes the gradient of its result to that of its input. An empty one is
// the identity.
struct Pair {
  Prepare forward, backward;
  bool reads_input = true;  // else this rank's input is a stand-in, and its gradient is not defined
  // Where backward, too, is such a pair, the other way round on every rank, this is null: then it has a derivative.
  // Else the name of the verb, for the error.
  const char* without_second = nullptr;
};

// The result, on the calling thread.
at::Tensor apply(const Group& group, const at::Tensor& in, const Pair& pair, CallSite at);
// The result to come. Both maps of the pair must have a request.
PendingTensor start(const Group& group, const at::Tensor& in, const Pair& pair, CallSite at);

// Whether the result of a call on such tensors gets a gradient, now, on every rank.
bool records_gradient(const at::Tensor& in);
// The values of a tensor, packed, with conjugation and negation carried out.
at::Tensor dense(const at::Tensor& tensor);

}  // namespace tutti::autograd
