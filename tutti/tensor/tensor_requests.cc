#include "tutti/tensor/tensor_requests.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <numeric>
#include <string_view>

namespace tutti::tensor_requests {
namespace {

void require_alike(const at::Tensor& in, const at::Tensor& out, std::string_view verb) {
  if (in.scalar_type() != out.scalar_type()) {
    throw Exception(invalid_argument(
        fmt::format("{}: in is {} and out is {}; expected one element type", verb, describe(in), describe(out))));
  }
  if (in.device() != out.device()) {
    throw Exception(invalid_argument(
        fmt::format("{}: in is {} and out is {}; expected both on one device", verb, describe(in), describe(out)),
        "move one of them with tensor.to(...)"));
  }
}

Request placed(const TensorPlace& place, Request request) {
  request.device = place.device;
  request.stream = place.stream;
  return request;
}

void require_count(std::size_t found, std::size_t expected, std::string_view verb, std::string_view role,
                   const at::Tensor& tensor) {
  if (found != expected) {
    throw Exception(invalid_argument(
        fmt::format("{}: {} is {} with {} elements; expected {}", verb, role, describe(tensor), found, expected)));
  }
}

void require_sum(std::string_view verb, std::span<const std::size_t> splits, std::size_t count, std::string_view role,
                 const at::Tensor& tensor) {
  const auto sum = std::accumulate(splits.begin(), splits.end(), std::size_t(0));
  if (sum != count) {
    throw Exception(invalid_argument(fmt::format("{}: {} is {} with {} elements, but {}_splits sum up to {}", verb,
                                                 role, describe(tensor), count, role, sum)));
  }
}

// The small side of a _v verb: this rank's entry of the splits.
void require_own(const Group& group, std::string_view verb, std::span<const std::size_t> splits, std::size_t count,
                 std::string_view splits_name, std::string_view role, const at::Tensor& tensor) {
  if (splits.size() != std::size_t(group.size()))
    throw Exception(invalid_argument(fmt::format("{}: {} has {} entries, expected {}, one for each rank of group {}",
                                                 verb, splits_name, splits.size(), group.size(), group.name())));
  if (splits[std::size_t(group.rank())] != count)
    throw Exception(
        invalid_argument(fmt::format("{}: {} is {} with {} elements, but {}[{}] is {}", verb, role, describe(tensor),
                                     count, splits_name, group.rank(), splits[std::size_t(group.rank())])));
}

// `out` of a verb that writes to it on the root only.
void* written_there(const at::Tensor& in, const at::Tensor& out, std::size_t count, std::string_view verb) {
  const auto bytes = written_bytes(out, fmt::format("out of {}", verb));
  require_alike(in, out, verb);
  require_count(bytes.count, count, verb, "out", out);
  return bytes.data;
}

}  // namespace

Request all_reduce(const at::Tensor& tensor, Reduction op) {
  if (tensor.defined() && tensor.layout() == at::kSparse)
    throw Exception(
        invalid_argument(fmt::format("the tensor of all_reduce, {}, is not dense", describe(tensor)),
                         "all_reduce_sparse() (tensor/sparse_collectives.h) takes it; or use tensor.to_dense()"));
  const auto bytes = written_bytes(tensor, "the tensor of all_reduce");
  return placed(bytes.place, {.kind = Kind::kAllReduce,
                              .dtype = bytes.dtype,
                              .op = op.op,
                              .in = bytes.data,
                              .out = bytes.data,
                              .count = bytes.count,
                              .factor = op.factor});
}

Request broadcast(const Group& group, const at::Tensor& tensor, int root) {
  const auto bytes = group.rank() == root ? bytes_anywhere(tensor, "the tensor of broadcast")
                                          : written_bytes(tensor, "the tensor of broadcast");
  return placed(bytes.place, {.kind = Kind::kBroadcast,
                              .dtype = bytes.dtype,
                              .root = root,
                              .in = bytes.data,
                              .out = bytes.data,
                              .count = bytes.count});
}

Request reduce(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, Reduction op) {
  const auto from = bytes_anywhere(in, "in of reduce");
  void* to = group.rank() == root ? written_there(in, out, from.count, "reduce") : nullptr;
  return placed(from.place, {.kind = Kind::kReduce,
                             .dtype = from.dtype,
                             .op = op.op,
                             .root = root,
                             .in = from.data,
                             .out = to,
                             .count = from.count,
                             .factor = op.factor});
}

Request scan(const Group& group, Kind kind, const at::Tensor& in, const at::Tensor& out, Reduction op) {
  const auto from = bytes_anywhere(in, fmt::format("in of {}", name(kind)));
  const bool gets = kind == Kind::kScan || group.rank() > 0;
  void* to = gets ? written_there(in, out, from.count, name(kind)) : nullptr;
  return placed(from.place, {.kind = kind,
                             .dtype = from.dtype,
                             .op = op.op,
                             .in = from.data,
                             .out = to,
                             .count = from.count,
                             .factor = op.factor});
}

Request gather(const Group& group, const at::Tensor& in, const at::Tensor& out, int root) {
  const auto from = bytes_anywhere(in, "in of gather");
  const std::size_t all = from.count * std::size_t(group.size());
  void* to = group.rank() == root ? written_there(in, out, all, "gather") : nullptr;
  return placed(
      from.place,
      {.kind = Kind::kGather, .dtype = from.dtype, .root = root, .in = from.data, .out = to, .count = from.count});
}

Request scatter(const Group& group, const at::Tensor& in, const at::Tensor& out, int root) {
  const auto to = written_bytes(out, "out of scatter");
  const void* from = nullptr;
  if (group.rank() == root) {
    const auto bytes = bytes_anywhere(in, "in of scatter");
    require_alike(in, out, "scatter");
    require_count(bytes.count, to.count * std::size_t(group.size()), "scatter", "in", in);
    from = bytes.data;
  }
  return placed(
      to.place,
      {.kind = Kind::kScatter, .dtype = to.dtype, .root = root, .in = from, .out = to.data, .count = to.count});
}

Request parts(const Group& group, Kind kind, const at::Tensor& in, const at::Tensor& out, Reduction op) {
  const auto verb = name(kind);
  const auto from = bytes_anywhere(in, fmt::format("in of {}", verb)),
             to = written_bytes(out, fmt::format("out of {}", verb));
  require_alike(in, out, verb);
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
  return placed(from.place, {.kind = kind,
                             .dtype = from.dtype,
                             .op = op.op,
                             .in = from.data,
                             .out = to.data,
                             .count = count,
                             .factor = op.factor});
}

Request uneven(const at::Tensor& in, std::span<const std::size_t> in_splits, const at::Tensor& out,
               std::span<const std::size_t> out_splits) {
  const auto from = bytes_anywhere(in, "in of all_to_all"), to = written_bytes(out, "out of all_to_all");
  require_alike(in, out, "all_to_all");
  require_sum("all_to_all", in_splits, from.count, "in", in);
  require_sum("all_to_all", out_splits, to.count, "out", out);
  return placed(from.place, {.kind = Kind::kAllToAll,
                             .dtype = from.dtype,
                             .in = from.data,
                             .out = to.data,
                             .in_splits = in_splits,
                             .out_splits = out_splits});
}

Request point(Kind kind, const at::Tensor& tensor, int peer, int tag) {
  const auto bytes =
      kind == Kind::kSend ? bytes_anywhere(tensor, "the tensor of send") : written_bytes(tensor, "the tensor of recv");
  return placed(bytes.place, {.kind = kind,
                              .dtype = bytes.dtype,
                              .root = peer,
                              .tag = tag,
                              .in = bytes.data,
                              .out = bytes.data,
                              .count = bytes.count});
}

Request everywhere_v(const Group& group, Kind kind, const at::Tensor& in, const at::Tensor& out,
                     std::span<const std::size_t> splits, Reduction op) {
  const auto verb = name(kind);
  const auto from = bytes_anywhere(in, fmt::format("in of {}", verb)),
             to = written_bytes(out, fmt::format("out of {}", verb));
  require_alike(in, out, verb);
  (void)group.rank();  // throws if there is no group
  const bool gathers = kind == Kind::kAllGatherV;
  require_own(group, verb, splits, gathers ? from.count : to.count, gathers ? "out_splits" : "in_splits",
              gathers ? "in" : "out", gathers ? in : out);
  require_sum(verb, splits, gathers ? to.count : from.count, gathers ? "out" : "in", gathers ? out : in);
  Request request =
      placed(from.place,
             {.kind = kind, .dtype = from.dtype, .op = op.op, .in = from.data, .out = to.data, .factor = op.factor});
  (gathers ? request.out_splits : request.in_splits) = splits;
  return request;
}

Request gather_v(const Group& group, const at::Tensor& in, const at::Tensor& out,
                 std::span<const std::size_t> out_splits, int root) {
  const auto from = bytes_anywhere(in, "in of gather_v");
  Request request = placed(
      from.place, {.kind = Kind::kGatherV, .dtype = from.dtype, .root = root, .in = from.data, .count = from.count});
  if (group.rank() != root) return request;
  const auto to = written_bytes(out, "out of gather_v");
  require_alike(in, out, "gather_v");
  require_own(group, "gather_v", out_splits, from.count, "out_splits", "in", in);
  require_sum("gather_v", out_splits, to.count, "out", out);
  request.out = to.data;
  request.out_splits = out_splits;
  return request;
}

Request scatter_v(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_splits,
                  const at::Tensor& out, int root) {
  const auto to = written_bytes(out, "out of scatter_v");
  Request request =
      placed(to.place, {.kind = Kind::kScatterV, .dtype = to.dtype, .root = root, .out = to.data, .count = to.count});
  if (group.rank() != root) return request;
  const auto from = bytes_anywhere(in, "in of scatter_v");
  require_alike(in, out, "scatter_v");
  require_own(group, "scatter_v", in_splits, to.count, "in_splits", "out", out);
  require_sum("scatter_v", in_splits, from.count, "in", in);
  request.in = from.data;
  request.in_splits = in_splits;
  return request;
}

}  // namespace tutti::tensor_requests
