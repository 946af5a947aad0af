// The regions of tensor parallelism. Here all ranks have one and the same loss, which counts once, so a gradient that
// every rank already has is passed on as it is, where the verbs would add up one from each rank.
#include <ATen/Functions.h>
#include <fmt/format.h>

#include "tutti/tensor/autograd_nodes.h"
#include "tutti/tensor/tensor_bytes.h"
#include "tutti/tensor/tensor_requests.h"

namespace tutti::autograd {
namespace {

Prepare all_reduce_call() {
  return [](const at::Tensor& in) {
    PreparedCall call{.in = in, .out = at::empty_like(in)};
    call.request = tensor_requests::all_reduce(call.out, ReduceOp::kSum);
    call.request->in = bytes_anywhere(in, "in of all_reduce").data;
    return call;
  };
}

Prepare slice(const Group& group, std::int64_t dim) {
  return [=](const at::Tensor& in) {
    const std::int64_t length = in.size(dim) / group.size();
    return PreparedCall{.in = in,
                        .out = in.narrow(dim, group.rank() * length, length).clone(at::MemoryFormat::Contiguous)};
  };
}

Prepare join(const Group& group, std::int64_t dim) {
  return [=](const at::Tensor& in) {
    auto sizes = in.sizes().vec();
    sizes.insert(sizes.begin(), group.size());
    PreparedCall call{.in = in, .out = at::empty(sizes, in.options())};
    call.request = tensor_requests::parts(group, Kind::kAllGather, in, call.out, ReduceOp::kSum);
    call.finish = [=](const at::Tensor& parts) { return parts.movedim(0, dim).flatten(dim, dim + 1); };
    return call;
  };
}

// Counted from the front.
std::int64_t dim_of(const Group& group, const at::Tensor& in, std::int64_t dim, const char* verb, bool divides) {
  const auto ranks = std::int64_t(group.global_ranks().size());
  const auto refuse = [&](std::string why) {
    throw Exception(invalid_argument(fmt::format("{}: in is {}, {}", verb, describe(in), why)));
  };
  if (!in.defined()) refuse("which has no dimensions");
  if (dim < -in.dim() || dim >= in.dim()) refuse(fmt::format("which has no dimension {}", dim));
  dim += dim < 0 ? in.dim() : 0;
  if (divides && in.size(dim) % ranks != 0)
    refuse(fmt::format("whose dimension {} is no multiple of {}, the size of group {}", dim, ranks, group.name()));
  return dim;
}

}  // namespace

at::Tensor copy_to_region(const Group& group, const at::Tensor& in, CallSite at) {
  require_memory(in, "in of copy_to_region");
  (void)group.rank();  // throws if there is no group
  return apply(group, in, {{}, all_reduce_call()}, at);
}
at::Tensor reduce_from_region(const Group& group, const at::Tensor& in, CallSite at) {
  require_memory(in, "in of reduce_from_region");
  return apply(group, in, {all_reduce_call(), {}}, at);
}
at::Tensor scatter_to_region(const Group& group, const at::Tensor& in, std::int64_t dim, CallSite at) {
  dim = dim_of(group, in, dim, "scatter_to_region", true);
  return apply(group, in, {slice(group, dim), join(group, dim)}, at);
}
at::Tensor gather_from_region(const Group& group, const at::Tensor& in, std::int64_t dim, CallSite at) {
  dim = dim_of(group, in, dim, "gather_from_region", false);
  return apply(group, in, {join(group, dim), slice(group, dim)}, at);
}

}  // namespace tutti::autograd
