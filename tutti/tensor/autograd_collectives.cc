// Each verb is a Pair (autograd_nodes.h): the call that it makes, and its transpose. The calls that occur on both sides
// come first, each a function that says what to allocate and what to ask for; the pairs are put together from them.
//
// Counting rows: a tensor [d0, d1, ...] has d0 rows of d1 * ... elements. A transposed call has to give back a tensor
// of the shape that the input had, so the shape is kept by the pair; all else follows from the gradient that comes.
#include "tutti/tensor/autograd_collectives.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <numeric>
#include <string_view>

#include "tutti/tensor/autograd_nodes.h"
#include "tutti/tensor/tensor_bytes.h"
#include "tutti/tensor/tensor_requests.h"

namespace tutti::autograd {
namespace {

using RowCounts = std::vector<std::size_t>;
using Sizes = std::vector<std::int64_t>;

struct RowShape {
  Sizes sizes;
  at::TensorOptions options;
  explicit RowShape(const at::Tensor& tensor) : sizes(tensor.sizes().vec()), options(tensor.options()) {}
  RowShape(Sizes these, at::TensorOptions those) : sizes(std::move(these)), options(those) {}

  at::Tensor empty() const { return at::empty(sizes, options); }
  std::int64_t rows() const { return sizes.empty() ? 1 : sizes[0]; }
  std::size_t row_elements() const {
    return std::size_t(std::accumulate(sizes.begin() + !sizes.empty(), sizes.end(), std::int64_t(1),
                                       [](std::int64_t a, std::int64_t b) { return a * b; }));
  }
  RowShape with_rows(std::int64_t rows) const {
    Sizes these = sizes;
    if (these.empty()) these.push_back(rows);
    these[0] = rows;
    return {std::move(these), options};
  }
  // Of a result where there is none.
  RowShape nothing() const { return {{0}, options}; }
};

// Gradients of send and recv have other tags than what the program sends. Not below zero: MPI has no such tags.
int gradient_tag(int tag) { return tag ^ (1 << 20); }

RowCounts elements_of(const RowCounts& rows, const RowShape& shape) {
  RowCounts elements = rows;
  for (auto& part : elements) part *= shape.row_elements();
  return elements;
}
std::int64_t sum_of(std::span<const std::size_t> rows) {
  return std::int64_t(std::accumulate(rows.begin(), rows.end(), std::size_t(0)));
}

[[noreturn]] void refuse(std::string text, std::string hint = {}) {
  throw Exception(invalid_argument(std::move(text), std::move(hint)));
}

void require_rows(const Group& group, std::string_view verb, std::string_view what, std::span<const std::size_t> rows) {
  if (rows.size() != group.global_ranks().size())
    refuse(fmt::format("{}: {} has {} entries; expected {}, one for each rank of group {}", verb, what, rows.size(),
                       group.size(), group.name()));
}
void require_sum(std::string_view verb, std::string_view what, std::span<const std::size_t> rows,
                 const at::Tensor& tensor) {
  if (sum_of(rows) != RowShape(tensor).rows())
    refuse(fmt::format("{}: in is {} with {} rows, but {} sum up to {}", verb, describe(tensor),
                       RowShape(tensor).rows(), what, sum_of(rows)));
}
// Rows of each part, where they are equal.
std::int64_t equal_rows(const Group& group, std::string_view verb, const at::Tensor& in) {
  const auto ranks = std::int64_t(group.global_ranks().size());
  const std::int64_t rows = RowShape(in).rows();
  if (rows % ranks != 0)
    refuse(fmt::format("{}: in is {} with {} rows; expected a multiple of {}, the size of group {}", verb, describe(in),
                       rows, ranks, group.name()),
           fmt::format("pad it, or use {}", verb == "all_to_all" ? "the form with rows" : "the _v form with rows"));
  return rows / ranks;
}
void require_tensor(const at::Tensor& tensor, std::string_view verb) {
  if (!tensor.defined()) refuse(fmt::format("in of {} is an undefined tensor", verb), "give a tensor");
}

// A call whose result is multiplied by what the op leaves to do.
Prepare times(double factor, Prepare call) {
  if (factor == 1) return call;
  return [=](const at::Tensor& in) {
    PreparedCall made = call(in);
    made.finish = [factor](const at::Tensor& out) { return at::mul(out, factor); };
    return made;
  };
}
// What takes a gradient through a reduction: its transpose has to multiply by this.
double weight_of(const Group& group, const at::Tensor& in, Reduction op, std::string_view verb) {
  if (op.op == ReduceOp::kSum) return 1;
  if (op.op == ReduceOp::kAvg) return 1.0 / double(group.global_ranks().size());
  if (op.op == ReduceOp::kPremulSum) return op.factor;
  if (!records_gradient(in)) return 1;  // never asked for
  refuse(fmt::format("{} ({}) has no gradient", verb, name(op.op)),
         "use sum, avg, premul_sum, or min and max of the blocking all_reduce; or call it under torch::NoGradGuard");
}

// ---- Calls ----

Prepare all_reduce_call(Reduction op) {
  return [=](const at::Tensor& in) {
    PreparedCall call{.in = in, .out = RowShape(in).empty()};
    call.request = tensor_requests::all_reduce(call.out, op);
    call.request->in = bytes_anywhere(in, "in of all_reduce").data;
    return call;
  };
}
Prepare all_gather_call(const Group& group) {
  return [=](const at::Tensor& in) {
    const RowShape shape(in);
    PreparedCall call{.in = in, .out = shape.with_rows(shape.rows() * group.size()).empty()};
    call.request = tensor_requests::parts(group, Kind::kAllGather, in, call.out, ReduceOp::kSum);
    return call;
  };
}
Prepare all_gather_v_call(const Group& group, RowCounts rows) {
  return [=](const at::Tensor& in) {
    const RowShape shape(in);
    PreparedCall call{.in = in, .out = shape.with_rows(sum_of(rows)).empty(), .out_splits = elements_of(rows, shape)};
    call.request =
        tensor_requests::everywhere_v(group, Kind::kAllGatherV, in, call.out, call.out_splits, ReduceOp::kSum);
    return call;
  };
}
Prepare reduce_scatter_call(const Group& group, RowShape part, Reduction op) {
  return [=](const at::Tensor& in) {
    PreparedCall call{.in = in, .out = part.empty()};
    call.request = tensor_requests::parts(group, Kind::kReduceScatter, in, call.out, op);
    return call;
  };
}
Prepare reduce_scatter_v_call(const Group& group, RowShape part, RowCounts rows, Reduction op) {
  return [=](const at::Tensor& in) {
    PreparedCall call{.in = in, .out = part.empty(), .in_splits = elements_of(rows, part)};
    call.request = tensor_requests::everywhere_v(group, Kind::kReduceScatterV, in, call.out, call.in_splits, op);
    return call;
  };
}
Prepare all_to_all_call(const Group& group) {
  return [=](const at::Tensor& in) {
    PreparedCall call{.in = in, .out = RowShape(in).empty()};
    call.request = tensor_requests::parts(group, Kind::kAllToAll, in, call.out, ReduceOp::kSum);
    return call;
  };
}
Prepare all_to_all_call(RowCounts in_rows, RowCounts out_rows) {
  return [=](const at::Tensor& in) {
    const RowShape shape(in);
    PreparedCall call{.in = in,
                      .out = shape.with_rows(sum_of(out_rows)).empty(),
                      .in_splits = elements_of(in_rows, shape),
                      .out_splits = elements_of(out_rows, shape)};
    call.request = tensor_requests::uneven(in, call.in_splits, call.out, call.out_splits);
    return call;
  };
}
Prepare broadcast_call(const Group& group, RowShape shape, int root) {
  return [=](const at::Tensor& in) {
    PreparedCall call{.in = in, .out = group.rank() == root ? in.clone() : shape.empty()};
    call.request = tensor_requests::broadcast(group, call.out, root);
    return call;
  };
}
Prepare reduce_call(const Group& group, int root, Reduction op) {
  return [=](const at::Tensor& in) {
    const RowShape shape(in);
    PreparedCall call{.in = in, .out = (group.rank() == root ? shape : shape.nothing()).empty()};
    call.request = tensor_requests::reduce(group, in, call.out, root, op);
    return call;
  };
}
Prepare gather_call(const Group& group, int root) {
  return [=](const at::Tensor& in) {
    const RowShape shape(in);
    const RowShape whole = group.rank() == root ? shape.with_rows(shape.rows() * group.size()) : shape.nothing();
    PreparedCall call{.in = in, .out = whole.empty()};
    call.request = tensor_requests::gather(group, in, call.out, root);
    return call;
  };
}
Prepare gather_v_call(const Group& group, RowCounts rows, int root) {
  return [=](const at::Tensor& in) {
    const RowShape shape(in);
    const bool is_root = group.rank() == root;
    PreparedCall call{.in = in,
                      .out = (is_root ? shape.with_rows(sum_of(rows)) : shape.nothing()).empty(),
                      .out_splits = is_root ? elements_of(rows, shape) : RowCounts()};
    call.request = tensor_requests::gather_v(group, in, call.out, call.out_splits, root);
    return call;
  };
}
Prepare scatter_call(const Group& group, RowShape part, int root) {
  return [=](const at::Tensor& in) {
    PreparedCall call{.in = in, .out = part.empty()};
    call.request = tensor_requests::scatter(group, in, call.out, root);
    return call;
  };
}
Prepare scatter_v_call(const Group& group, RowShape part, RowCounts rows, int root) {
  return [=](const at::Tensor& in) {
    PreparedCall call{
        .in = in, .out = part.empty(), .in_splits = group.rank() == root ? elements_of(rows, part) : RowCounts()};
    call.request = tensor_requests::scatter_v(group, in, call.in_splits, call.out, root);
    return call;
  };
}
Prepare send_call(int peer, int tag) {
  return [=](const at::Tensor& in) {
    PreparedCall call{.in = in, .out = at::zeros({}, in.options())};
    call.request = tensor_requests::point(Kind::kSend, in, peer, tag);
    return call;
  };
}
Prepare recv_call(RowShape shape, int peer, int tag) {
  return [=](const at::Tensor& in) {
    PreparedCall call{.in = in, .out = shape.empty()};
    call.request = tensor_requests::point(Kind::kRecv, call.out, peer, tag);
    return call;
  };
}

// ---- Pairs ----

Pair all_reduce_pair(const Group& group, const at::Tensor& in, Reduction op) {
  require_tensor(in, "all_reduce");
  if (op.op == ReduceOp::kAvg) return {all_reduce_call(op), all_reduce_call(op)};
  return {all_reduce_call(op), times(weight_of(group, in, op, "all_reduce"), all_reduce_call(ReduceOp::kSum))};
}
Pair all_gather_pair(const Group& group, const at::Tensor& in) {
  require_tensor(in, "all_gather");
  return {all_gather_call(group), reduce_scatter_call(group, RowShape(in), ReduceOp::kSum)};
}
Pair all_gather_v_pair(const Group& group, const at::Tensor& in, std::span<const std::size_t> rows) {
  require_tensor(in, "all_gather_v");
  require_rows(group, "all_gather_v", "rows", rows);
  const RowShape part(in);
  if (std::int64_t(rows[std::size_t(group.rank())]) != part.rows())
    refuse(fmt::format("all_gather_v: in is {} with {} rows, but rows[{}] is {}", describe(in), part.rows(),
                       group.rank(), rows[std::size_t(group.rank())]));
  const RowCounts kept(rows.begin(), rows.end());
  return {all_gather_v_call(group, kept), reduce_scatter_v_call(group, part, kept, ReduceOp::kSum)};
}
Pair reduce_scatter_pair(const Group& group, const at::Tensor& in, Reduction op) {
  require_tensor(in, "reduce_scatter");
  const RowShape part = RowShape(in).with_rows(equal_rows(group, "reduce_scatter", in));
  return {reduce_scatter_call(group, part, op),
          times(weight_of(group, in, op, "reduce_scatter"), all_gather_call(group))};
}
Pair reduce_scatter_v_pair(const Group& group, const at::Tensor& in, std::span<const std::size_t> rows, Reduction op) {
  require_tensor(in, "reduce_scatter_v");
  require_rows(group, "reduce_scatter_v", "rows", rows);
  require_sum("reduce_scatter_v", "rows", rows, in);
  const RowCounts kept(rows.begin(), rows.end());
  const RowShape part = RowShape(in).with_rows(std::int64_t(rows[std::size_t(group.rank())]));
  return {reduce_scatter_v_call(group, part, kept, op),
          times(weight_of(group, in, op, "reduce_scatter_v"), all_gather_v_call(group, kept))};
}
Pair all_to_all_pair(const Group& group, const at::Tensor& in) {
  require_tensor(in, "all_to_all");
  equal_rows(group, "all_to_all", in);
  return {all_to_all_call(group), all_to_all_call(group)};
}
Pair all_to_all_pair(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_rows,
                     std::span<const std::size_t> out_rows) {
  require_tensor(in, "all_to_all");
  require_rows(group, "all_to_all", "in_rows", in_rows);
  require_rows(group, "all_to_all", "out_rows", out_rows);
  require_sum("all_to_all", "in_rows", in_rows, in);
  const RowCounts to(in_rows.begin(), in_rows.end()), from(out_rows.begin(), out_rows.end());
  return {all_to_all_call(to, from), all_to_all_call(from, to)};
}

// Of a tensor that this rank does not have.
at::Tensor nothing_like(const at::Tensor& like) { return at::empty({0}, like.options()); }

// The gradient of an extremum goes to those who had it, in equal shares; they are counted in the call that sums up the
// gradient.
at::Tensor all_reduce_extremum(const Group& group, const at::Tensor& in, ReduceOp op, CallSite at) {
  struct Held {
    at::Tensor by_me;
  };
  const auto held = std::make_shared<Held>();
  Pair pair{.without_second = op == ReduceOp::kMin ? "all_reduce (min)" : "all_reduce (max)"};
  pair.forward = [=](const at::Tensor& dense) {
    PreparedCall call = all_reduce_call(op)(dense);
    call.finish = [=](const at::Tensor& out) {
      held->by_me = dense.eq(out);
      return out;
    };
    return call;
  };
  pair.backward = [=](const at::Tensor& gradient) {
    PreparedCall call = all_reduce_call(ReduceOp::kSum)(at::stack({gradient, held->by_me.to(gradient.scalar_type())}));
    call.finish = [=](const at::Tensor& out) {
      return at::where(held->by_me, at::div(out[0], out[1]), at::zeros({}, out.options()));
    };
    return call;
  };
  return apply(group, in, pair, at);
}

}  // namespace

at::Tensor all_reduce(const Group& group, const at::Tensor& in, Reduction op, CallSite at) {
  const bool extremum = op.op == ReduceOp::kMin || op.op == ReduceOp::kMax;
  if (extremum && in.defined()) return all_reduce_extremum(group, in, op.op, at);
  return apply(group, in, all_reduce_pair(group, in, op), at);
}

at::Tensor broadcast(const Group& group, const at::Tensor& in, int root, CallSite at) {
  require_tensor(in, "broadcast");
  return apply(group, in,
               {broadcast_call(group, RowShape(in), root), reduce_call(group, root, ReduceOp::kSum),
                group.rank() == root, "broadcast"},
               at);
}

at::Tensor reduce(const Group& group, const at::Tensor& in, int root, Reduction op, CallSite at) {
  require_tensor(in, "reduce");
  return apply(group, in,
               {reduce_call(group, root, op),
                times(weight_of(group, in, op, "reduce"), broadcast_call(group, RowShape(in), root))},
               at);
}

at::Tensor all_gather(const Group& group, const at::Tensor& in, CallSite at) {
  return apply(group, in, all_gather_pair(group, in), at);
}
at::Tensor all_gather_v(const Group& group, const at::Tensor& in, std::span<const std::size_t> rows, CallSite at) {
  return apply(group, in, all_gather_v_pair(group, in, rows), at);
}
at::Tensor reduce_scatter(const Group& group, const at::Tensor& in, Reduction op, CallSite at) {
  return apply(group, in, reduce_scatter_pair(group, in, op), at);
}
at::Tensor reduce_scatter_v(const Group& group, const at::Tensor& in, std::span<const std::size_t> rows, Reduction op,
                            CallSite at) {
  return apply(group, in, reduce_scatter_v_pair(group, in, rows, op), at);
}
at::Tensor all_to_all(const Group& group, const at::Tensor& in, CallSite at) {
  return apply(group, in, all_to_all_pair(group, in), at);
}
at::Tensor all_to_all(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_rows,
                      std::span<const std::size_t> out_rows, CallSite at) {
  return apply(group, in, all_to_all_pair(group, in, in_rows, out_rows), at);
}

at::Tensor gather(const Group& group, const at::Tensor& in, int root, CallSite at) {
  require_tensor(in, "gather");
  return apply(group, in, {gather_call(group, root), scatter_call(group, RowShape(in), root)}, at);
}
at::Tensor gather_v(const Group& group, const at::Tensor& in, std::span<const std::size_t> rows, int root,
                    CallSite at) {
  require_tensor(in, "gather_v");
  if (group.rank() == root) require_rows(group, "gather_v", "rows", rows);
  const RowCounts kept(rows.begin(), rows.end());
  return apply(group, in, {gather_v_call(group, kept, root), scatter_v_call(group, RowShape(in), kept, root)}, at);
}
at::Tensor scatter(const Group& group, const at::Tensor& in, const at::Tensor& like, int root, CallSite at) {
  require_tensor(like, "scatter");
  const bool is_root = group.rank() == root;
  if (is_root) require_tensor(in, "scatter");
  return apply(group, is_root ? in : nothing_like(like),
               {scatter_call(group, RowShape(like), root), gather_call(group, root), is_root, "scatter"}, at);
}
at::Tensor scatter_v(const Group& group, const at::Tensor& in, std::span<const std::size_t> rows,
                     const at::Tensor& like, int root, CallSite at) {
  require_tensor(like, "scatter_v");
  const bool is_root = group.rank() == root;
  if (is_root) {
    require_tensor(in, "scatter_v");
    require_rows(group, "scatter_v", "rows", rows);
    require_sum("scatter_v", "rows", rows, in);
  }
  const RowCounts kept(rows.begin(), rows.end());
  return apply(
      group, is_root ? in : nothing_like(like),
      {scatter_v_call(group, RowShape(like), kept, root), gather_v_call(group, kept, root), is_root, "scatter_v"}, at);
}

at::Tensor send(const Group& group, const at::Tensor& in, int peer, int tag, CallSite at) {
  require_tensor(in, "send");
  return apply(group, in, {send_call(peer, tag), recv_call(RowShape(in), peer, gradient_tag(tag)), true, "send"}, at);
}
at::Tensor recv(const Group& group, const at::Tensor& like, int peer, int tag, CallSite at) {
  require_tensor(like, "recv");
  return apply(group, nothing_like(like),
               {recv_call(RowShape(like), peer, tag), send_call(peer, gradient_tag(tag)), false, "recv"}, at);
}

PendingTensor all_reduce_async(const Group& group, const at::Tensor& in, Reduction op, CallSite at) {
  return start(group, in, all_reduce_pair(group, in, op), at);
}
PendingTensor all_gather_async(const Group& group, const at::Tensor& in, CallSite at) {
  return start(group, in, all_gather_pair(group, in), at);
}
PendingTensor all_gather_v_async(const Group& group, const at::Tensor& in, std::span<const std::size_t> rows,
                                 CallSite at) {
  return start(group, in, all_gather_v_pair(group, in, rows), at);
}
PendingTensor reduce_scatter_async(const Group& group, const at::Tensor& in, Reduction op, CallSite at) {
  return start(group, in, reduce_scatter_pair(group, in, op), at);
}
PendingTensor reduce_scatter_v_async(const Group& group, const at::Tensor& in, std::span<const std::size_t> rows,
                                     Reduction op, CallSite at) {
  return start(group, in, reduce_scatter_v_pair(group, in, rows, op), at);
}
PendingTensor all_to_all_async(const Group& group, const at::Tensor& in, CallSite at) {
  return start(group, in, all_to_all_pair(group, in), at);
}
PendingTensor all_to_all_async(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_rows,
                               std::span<const std::size_t> out_rows, CallSite at) {
  return start(group, in, all_to_all_pair(group, in, in_rows, out_rows), at);
}

}  // namespace tutti::autograd
