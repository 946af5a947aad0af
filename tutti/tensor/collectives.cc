// Every verb is two steps: turn the tensors into the Request that describes them, where all the checks are, and hand it
// to the group. A tensor that is written to gets a new version, so that autograd notices when a value that it has saved
// was overwritten.
#include "tutti/tensor/collectives.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>
#include <numeric>
#include <vector>

namespace tutti {
namespace {

std::optional<DType> dtype_of(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  if (type == at::kFloat) return DType::kF32;
  if (type == at::kDouble) return DType::kF64;
  if (type == at::kHalf) return DType::kF16;
  if (type == at::kBFloat16) return DType::kBF16;
  if (type == at::kChar) return DType::kI8;
  if (type == at::kByte) return DType::kU8;
  if (type == at::kInt) return DType::kI32;
  if (type == at::kLong) return DType::kI64;
  if (type == at::kBool) return DType::kBool;
  if (type == at::kComplexFloat) return DType::kC64;
  if (type == at::kComplexDouble) return DType::kC128;
  return {};
}

[[noreturn]] void refuse(std::string_view role, const at::Tensor& tensor, std::string_view why, std::string hint) {
  throw Exception(invalid_argument(fmt::format("{}, {}, {}", role, describe(tensor), why), std::move(hint)));
}

TensorBytes written(const at::Tensor& tensor, std::string_view role) {
  const auto bytes = checked_bytes(tensor, role);
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  return bytes;
}

void require_same_type(const at::Tensor& in, const at::Tensor& out, std::string_view verb) {
  if (in.scalar_type() != out.scalar_type()) {
    throw Exception(invalid_argument(
        fmt::format("{}: in is {} and out is {}; expected one element type", verb, describe(in), describe(out))));
  }
}

void require_count(std::size_t found, std::size_t expected, std::string_view verb, std::string_view role,
                   const at::Tensor& tensor) {
  if (found != expected) {
    throw Exception(invalid_argument(
        fmt::format("{}: {} is {} with {} elements; expected {}", verb, role, describe(tensor), found, expected)));
  }
}

void require_sum(std::span<const std::size_t> splits, std::size_t count, std::string_view role,
                 const at::Tensor& tensor) {
  const auto sum = std::accumulate(splits.begin(), splits.end(), std::size_t(0));
  if (sum != count) {
    throw Exception(invalid_argument(fmt::format("all_to_all: {} is {} with {} elements, but {}_splits sum up to {}",
                                                 role, describe(tensor), count, role, sum)));
  }
}

// `out` of a verb that writes to it on the root only.
void* written_on_root(const at::Tensor& in, const at::Tensor& out, std::size_t count, std::string_view verb) {
  const auto bytes = written(out, fmt::format("out of {}", verb));
  require_same_type(in, out, verb);
  require_count(bytes.count, count, verb, "out", out);
  return bytes.data;
}

Request all_reduce_request(const at::Tensor& tensor, Reduction op) {
  const auto bytes = written(tensor, "the tensor of all_reduce");
  return {.kind = Kind::kAllReduce,
          .dtype = bytes.dtype,
          .op = op.op,
          .in = bytes.data,
          .out = bytes.data,
          .count = bytes.count,
          .factor = op.factor};
}

Request broadcast_request(const Group& group, const at::Tensor& tensor, int root) {
  const auto bytes = group.rank() == root ? checked_bytes(tensor, "the tensor of broadcast")
                                          : written(tensor, "the tensor of broadcast");
  return {.kind = Kind::kBroadcast,
          .dtype = bytes.dtype,
          .root = root,
          .in = bytes.data,
          .out = bytes.data,
          .count = bytes.count};
}

Request reduce_request(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, Reduction op) {
  const auto from = checked_bytes(in, "in of reduce");
  void* to = group.rank() == root ? written_on_root(in, out, from.count, "reduce") : nullptr;
  return {.kind = Kind::kReduce,
          .dtype = from.dtype,
          .op = op.op,
          .root = root,
          .in = from.data,
          .out = to,
          .count = from.count,
          .factor = op.factor};
}

Request gather_request(const Group& group, const at::Tensor& in, const at::Tensor& out, int root) {
  const auto from = checked_bytes(in, "in of gather");
  const std::size_t all = from.count * std::size_t(group.size());
  void* to = group.rank() == root ? written_on_root(in, out, all, "gather") : nullptr;
  return {.kind = Kind::kGather, .dtype = from.dtype, .root = root, .in = from.data, .out = to, .count = from.count};
}

Request scatter_request(const Group& group, const at::Tensor& in, const at::Tensor& out, int root) {
  const auto to = written(out, "out of scatter");
  const void* from = nullptr;
  if (group.rank() == root) {
    const auto bytes = checked_bytes(in, "in of scatter");
    require_same_type(in, out, "scatter");
    require_count(bytes.count, to.count * std::size_t(group.size()), "scatter", "in", in);
    from = bytes.data;
  }
  return {.kind = Kind::kScatter, .dtype = to.dtype, .root = root, .in = from, .out = to.data, .count = to.count};
}

// One side holds a part for every rank.
Request parts_request(const Group& group, Kind kind, const at::Tensor& in, const at::Tensor& out,
                      Reduction op = ReduceOp::kSum) {
  const auto verb = name(kind);
  const auto from = checked_bytes(in, fmt::format("in of {}", verb)), to = written(out, fmt::format("out of {}", verb));
  require_same_type(in, out, verb);
  const std::size_t ranks = group.global_ranks().size();  // throws if there is no group, where size() is 0
  std::size_t count = 0;
  if (kind == Kind::kAllGather) {
    count = from.count;
    require_count(to.count, count * ranks, verb, "out", out);
  } else if (kind == Kind::kReduceScatter) {
    count = to.count;
    require_count(from.count, count * ranks, verb, "in", in);
  } else {
    count = from.count / ranks;
    require_count(from.count, count * ranks, verb, "in", in);
    require_count(to.count, from.count, verb, "out", out);
  }
  return {.kind = kind,
          .dtype = from.dtype,
          .op = op.op,
          .in = from.data,
          .out = to.data,
          .count = count,
          .factor = op.factor};
}

Request uneven_request(const at::Tensor& in, std::span<const std::size_t> in_splits, const at::Tensor& out,
                       std::span<const std::size_t> out_splits) {
  const auto from = checked_bytes(in, "in of all_to_all"), to = written(out, "out of all_to_all");
  require_same_type(in, out, "all_to_all");
  require_sum(in_splits, from.count, "in", in);
  require_sum(out_splits, to.count, "out", out);
  return {.kind = Kind::kAllToAll,
          .dtype = from.dtype,
          .in = from.data,
          .out = to.data,
          .in_splits = in_splits,
          .out_splits = out_splits};
}

Request point_request(Kind kind, const at::Tensor& tensor, int peer, int tag) {
  const auto bytes =
      kind == Kind::kSend ? checked_bytes(tensor, "the tensor of send") : written(tensor, "the tensor of recv");
  return {.kind = kind,
          .dtype = bytes.dtype,
          .root = peer,
          .tag = tag,
          .in = bytes.data,
          .out = bytes.data,
          .count = bytes.count};
}

TensorWork start(const Group& group, const Request& request, std::initializer_list<at::Tensor> tensors, CallSite at) {
  return TensorWork(group.submit(request, at), std::span(tensors.begin(), tensors.size()));
}

}  // namespace

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  const auto dtype = dtype_of(tensor);
  std::string text = fmt::format("{}[{}]", dtype ? name(*dtype) : c10::toString(tensor.scalar_type()),
                                 fmt::join(tensor.sizes().vec(), ", "));
  if (!tensor.device().is_cpu()) text += fmt::format(" on {}", tensor.device().str());
  return text;
}

void require_cpu_memory(const at::Tensor& tensor, std::string_view role) {
  if (!tensor.defined()) refuse(role, tensor, "holds nothing", "give a tensor of the right shape");
  if (!tensor.device().is_cpu()) refuse(role, tensor, "is not on the CPU", "move it with tensor.to(torch::kCPU)");
  if (tensor.layout() != at::kStrided) refuse(role, tensor, "is not dense", "convert it with tensor.to_dense()");
}

TensorBytes checked_bytes(const at::Tensor& tensor, std::string_view role) {
  require_cpu_memory(tensor, role);
  const auto dtype = dtype_of(tensor);
  if (!dtype)
    refuse(role, tensor, "has an element type that collectives do not know",
           "convert it, for example with tensor.to(torch::kFloat); known are f32, f64, f16, bf16, i8, u8, i32, i64, "
           "bool, c64, c128");
  if (!tensor.is_contiguous())
    refuse(role, tensor, fmt::format("is not contiguous (strides [{}])", fmt::join(tensor.strides().vec(), ", ")),
           "use tensor.contiguous(), and copy the result back if it is written to");
  return {.dtype = *dtype, .data = tensor.data_ptr(), .count = std::size_t(tensor.numel())};
}

TensorWork::TensorWork(Work work, std::span<const at::Tensor> tensors) : flight_(std::make_shared<Flight>()) {
  flight_->work = std::move(work);
  flight_->tensors = std::make_shared<std::vector<at::Tensor>>(tensors.begin(), tensors.end());
}

TensorWork::Flight::~Flight() {
  if (std::uncaught_exceptions() == 0) (void)work.wait();  // else ~Work ends the operation
}

void all_reduce(const Group& group, const at::Tensor& tensor, Reduction op, CallSite at) {
  group.run(all_reduce_request(tensor, op), at).or_throw();
}
TensorWork all_reduce_async(const Group& group, const at::Tensor& tensor, Reduction op, CallSite at) {
  return start(group, all_reduce_request(tensor, op), {tensor}, at);
}

void broadcast(const Group& group, const at::Tensor& tensor, int root, CallSite at) {
  group.run(broadcast_request(group, tensor, root), at).or_throw();
}
TensorWork broadcast_async(const Group& group, const at::Tensor& tensor, int root, CallSite at) {
  return start(group, broadcast_request(group, tensor, root), {tensor}, at);
}

void reduce(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, Reduction op, CallSite at) {
  group.run(reduce_request(group, in, out, root, op), at).or_throw();
}
TensorWork reduce_async(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, Reduction op,
                        CallSite at) {
  return start(group, reduce_request(group, in, out, root, op), {in, out}, at);
}

void all_gather(const Group& group, const at::Tensor& in, const at::Tensor& out, CallSite at) {
  group.run(parts_request(group, Kind::kAllGather, in, out), at).or_throw();
}
TensorWork all_gather_async(const Group& group, const at::Tensor& in, const at::Tensor& out, CallSite at) {
  return start(group, parts_request(group, Kind::kAllGather, in, out), {in, out}, at);
}

void gather(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, CallSite at) {
  group.run(gather_request(group, in, out, root), at).or_throw();
}
TensorWork gather_async(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, CallSite at) {
  return start(group, gather_request(group, in, out, root), {in, out}, at);
}

void scatter(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, CallSite at) {
  group.run(scatter_request(group, in, out, root), at).or_throw();
}
TensorWork scatter_async(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, CallSite at) {
  return start(group, scatter_request(group, in, out, root), {in, out}, at);
}

void reduce_scatter(const Group& group, const at::Tensor& in, const at::Tensor& out, Reduction op, CallSite at) {
  group.run(parts_request(group, Kind::kReduceScatter, in, out, op), at).or_throw();
}
TensorWork reduce_scatter_async(const Group& group, const at::Tensor& in, const at::Tensor& out, Reduction op,
                                CallSite at) {
  return start(group, parts_request(group, Kind::kReduceScatter, in, out, op), {in, out}, at);
}

void all_to_all(const Group& group, const at::Tensor& in, const at::Tensor& out, CallSite at) {
  group.run(parts_request(group, Kind::kAllToAll, in, out), at).or_throw();
}
TensorWork all_to_all_async(const Group& group, const at::Tensor& in, const at::Tensor& out, CallSite at) {
  return start(group, parts_request(group, Kind::kAllToAll, in, out), {in, out}, at);
}

void all_to_all(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_splits, const at::Tensor& out,
                std::span<const std::size_t> out_splits, CallSite at) {
  group.run(uneven_request(in, in_splits, out, out_splits), at).or_throw();
}
TensorWork all_to_all_async(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_splits,
                            const at::Tensor& out, std::span<const std::size_t> out_splits, CallSite at) {
  return start(group, uneven_request(in, in_splits, out, out_splits), {in, out}, at);
}

void send(const Group& group, const at::Tensor& tensor, int peer, int tag, CallSite at) {
  isend(group, tensor, peer, tag, at).get();
}
void recv(const Group& group, const at::Tensor& tensor, int peer, int tag, CallSite at) {
  irecv(group, tensor, peer, tag, at).get();
}
TensorWork isend(const Group& group, const at::Tensor& tensor, int peer, int tag, CallSite at) {
  return start(group, point_request(Kind::kSend, tensor, peer, tag), {tensor}, at);
}
TensorWork irecv(const Group& group, const at::Tensor& tensor, int peer, int tag, CallSite at) {
  return start(group, point_request(Kind::kRecv, tensor, peer, tag), {tensor}, at);
}

}  // namespace tutti
