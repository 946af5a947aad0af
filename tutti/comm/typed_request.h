#pragma once
// Creates requests from typed spans, and maps element types to DType.
#include <complex>
#include <cstdint>
#include <numeric>
#include <span>
#include <type_traits>

#include "tutti/base/float16.h"
#include "tutti/comm/group.h"

namespace tutti {

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DType::kF32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::kF64;
  else if constexpr (std::is_same_v<T, Half>)
    return DType::kF16;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return DType::kBF16;
  else if constexpr (std::is_same_v<T, std::int8_t>)
    return DType::kI8;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return DType::kU8;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DType::kI32;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return DType::kI64;
  else if constexpr (std::is_same_v<T, bool>)
    return DType::kBool;
  else if constexpr (std::is_same_v<T, std::complex<float>>)
    return DType::kC64;
  else if constexpr (std::is_same_v<T, std::complex<double>>)
    return DType::kC128;
  else
    static_assert(sizeof(T) == 0, "no DType for this element type");
}

// Creates a Request from typed spans. Checks the sizes of the spans, which the group cannot see. Throws Exception.
namespace requests {

inline std::size_t sum(std::span<const std::size_t> splits) {
  return std::accumulate(splits.begin(), splits.end(), std::size_t(0));
}
// Throws if `group` is no group, whose size would be 0.
inline std::size_t ranks_in(const Group& group) { return group.global_ranks().size(); }
// The entry of this rank. Throws if the number of splits is wrong.
inline std::size_t own(const Group& group, const char* verb, const char* what, std::span<const std::size_t> splits) {
  TUTTI_REQUIRE(splits.size() == ranks_in(group), verb, ": ", what, " has ", splits.size(), " entries, expected ",
                group.size(), ", one for each rank of group ", group.name());
  return splits[std::size_t(group.rank())];
}

template <class T>
Request all_reduce(std::span<T> data, Reduction op) {
  return {.kind = Kind::kAllReduce,
          .dtype = dtype_of<T>(),
          .op = op.op,
          .in = data.data(),
          .out = data.data(),
          .count = data.size(),
          .factor = op.factor};
}
template <class T>
Request reduce(const Group& group, std::span<const T> in, std::span<T> out, int root, Reduction op) {
  TUTTI_REQUIRE(group.rank() != root || out.size() == in.size(), "reduce: out has ", out.size(),
                " elements on the root, expected ", in.size());
  return {.kind = Kind::kReduce,
          .dtype = dtype_of<T>(),
          .op = op.op,
          .root = root,
          .in = in.data(),
          .out = out.data(),
          .count = in.size(),
          .factor = op.factor};
}
template <class T>
Request scan(Kind kind, const Group& group, std::span<const T> in, std::span<T> out, Reduction op) {
  const bool gets = kind == Kind::kScan || group.rank() > 0;
  TUTTI_REQUIRE(!gets || out.size() == in.size(), name(kind), ": out has ", out.size(), " elements, expected ",
                in.size());
  return {.kind = kind,
          .dtype = dtype_of<T>(),
          .op = op.op,
          .in = in.data(),
          .out = out.data(),
          .count = in.size(),
          .factor = op.factor};
}
template <class T>
Request broadcast(std::span<T> data, int root) {
  return {.kind = Kind::kBroadcast,
          .dtype = dtype_of<T>(),
          .root = root,
          .in = data.data(),
          .out = data.data(),
          .count = data.size()};
}
template <class T>
Request all_gather(const Group& group, std::span<const T> in, std::span<T> out) {
  TUTTI_REQUIRE(out.size() == in.size() * ranks_in(group), "all_gather: out has ", out.size(), " elements, expected ",
                in.size() * group.size());
  return {.kind = Kind::kAllGather, .dtype = dtype_of<T>(), .in = in.data(), .out = out.data(), .count = in.size()};
}
template <class T>
Request gather(const Group& group, std::span<const T> in, std::span<T> out, int root) {
  TUTTI_REQUIRE(group.rank() != root || out.size() == in.size() * group.size(), "gather: out has ", out.size(),
                " elements on the root, expected ", in.size() * group.size());
  return {.kind = Kind::kGather,
          .dtype = dtype_of<T>(),
          .root = root,
          .in = in.data(),
          .out = out.data(),
          .count = in.size()};
}
template <class T>
Request scatter(const Group& group, std::span<const T> in, std::span<T> out, int root) {
  TUTTI_REQUIRE(group.rank() != root || in.size() == out.size() * group.size(), "scatter: in has ", in.size(),
                " elements on the root, expected ", out.size() * group.size());
  return {.kind = Kind::kScatter,
          .dtype = dtype_of<T>(),
          .root = root,
          .in = in.data(),
          .out = out.data(),
          .count = out.size()};
}
template <class T>
Request reduce_scatter(const Group& group, std::span<const T> in, std::span<T> out, Reduction op) {
  TUTTI_REQUIRE(in.size() == out.size() * ranks_in(group), "reduce_scatter: in has ", in.size(), " elements, expected ",
                out.size() * group.size());
  return {.kind = Kind::kReduceScatter,
          .dtype = dtype_of<T>(),
          .op = op.op,
          .in = in.data(),
          .out = out.data(),
          .count = out.size(),
          .factor = op.factor};
}
template <class T>
Request all_to_all(const Group& group, std::span<const T> in, std::span<T> out) {
  TUTTI_REQUIRE(in.size() == out.size() && in.size() % ranks_in(group) == 0, "all_to_all: in has ", in.size(),
                " and out ", out.size(), " elements, expected equal multiples of ", group.size());
  return {.kind = Kind::kAllToAll,
          .dtype = dtype_of<T>(),
          .in = in.data(),
          .out = out.data(),
          .count = in.size() / group.size()};
}
template <class T>
Request all_to_all(std::span<const T> in, std::span<const std::size_t> in_splits, std::span<T> out,
                   std::span<const std::size_t> out_splits) {
  TUTTI_REQUIRE(sum(in_splits) == in.size(), "all_to_all: in has ", in.size(), " elements, in_splits sum up to ",
                sum(in_splits));
  TUTTI_REQUIRE(sum(out_splits) == out.size(), "all_to_all: out has ", out.size(), " elements, out_splits sum up to ",
                sum(out_splits));
  return {.kind = Kind::kAllToAll,
          .dtype = dtype_of<T>(),
          .in = in.data(),
          .out = out.data(),
          .in_splits = in_splits,
          .out_splits = out_splits};
}

template <class T>
Request all_gather_v(const Group& group, std::span<const T> in, std::span<T> out,
                     std::span<const std::size_t> out_splits) {
  const std::size_t part = own(group, "all_gather_v", "out_splits", out_splits);
  TUTTI_REQUIRE(in.size() == part, "all_gather_v: in has ", in.size(), " elements, out_splits[", group.rank(), "] is ",
                part);
  TUTTI_REQUIRE(out.size() == sum(out_splits), "all_gather_v: out has ", out.size(), " elements, out_splits sum up to ",
                sum(out_splits));
  return {
      .kind = Kind::kAllGatherV, .dtype = dtype_of<T>(), .in = in.data(), .out = out.data(), .out_splits = out_splits};
}
template <class T>
Request reduce_scatter_v(const Group& group, std::span<const T> in, std::span<const std::size_t> in_splits,
                         std::span<T> out, Reduction op) {
  const std::size_t part = own(group, "reduce_scatter_v", "in_splits", in_splits);
  TUTTI_REQUIRE(out.size() == part, "reduce_scatter_v: out has ", out.size(), " elements, in_splits[", group.rank(),
                "] is ", part);
  TUTTI_REQUIRE(in.size() == sum(in_splits), "reduce_scatter_v: in has ", in.size(), " elements, in_splits sum up to ",
                sum(in_splits));
  return {.kind = Kind::kReduceScatterV,
          .dtype = dtype_of<T>(),
          .op = op.op,
          .in = in.data(),
          .out = out.data(),
          .factor = op.factor,
          .in_splits = in_splits};
}
template <class T>
Request gather_v(const Group& group, std::span<const T> in, std::span<T> out, std::span<const std::size_t> out_splits,
                 int root) {
  Request request{.kind = Kind::kGatherV,
                  .dtype = dtype_of<T>(),
                  .root = root,
                  .in = in.data(),
                  .out = out.data(),
                  .count = in.size()};
  if (group.rank() != root) return request;
  const std::size_t part = own(group, "gather_v", "out_splits", out_splits);
  TUTTI_REQUIRE(in.size() == part, "gather_v: in has ", in.size(), " elements, out_splits[", root, "] is ", part);
  TUTTI_REQUIRE(out.size() == sum(out_splits), "gather_v: out has ", out.size(), " elements, out_splits sum up to ",
                sum(out_splits));
  request.out_splits = out_splits;
  return request;
}
template <class T>
Request scatter_v(const Group& group, std::span<const T> in, std::span<const std::size_t> in_splits, std::span<T> out,
                  int root) {
  Request request{.kind = Kind::kScatterV,
                  .dtype = dtype_of<T>(),
                  .root = root,
                  .in = in.data(),
                  .out = out.data(),
                  .count = out.size()};
  if (group.rank() != root) return request;
  const std::size_t part = own(group, "scatter_v", "in_splits", in_splits);
  TUTTI_REQUIRE(out.size() == part, "scatter_v: out has ", out.size(), " elements, in_splits[", root, "] is ", part);
  TUTTI_REQUIRE(in.size() == sum(in_splits), "scatter_v: in has ", in.size(), " elements, in_splits sum up to ",
                sum(in_splits));
  request.in_splits = in_splits;
  return request;
}
template <class T>
Request send(std::span<const T> data, int peer, int tag = 0) {
  return {
      .kind = Kind::kSend, .dtype = dtype_of<T>(), .root = peer, .tag = tag, .in = data.data(), .count = data.size()};
}
template <class T>
Request recv(std::span<T> data, int peer, int tag = 0) {
  return {
      .kind = Kind::kRecv, .dtype = dtype_of<T>(), .root = peer, .tag = tag, .out = data.data(), .count = data.size()};
}
template <class T>
Request recv_any(std::span<T> data, std::int32_t& source, int tag = 0) {
  Request request = recv(data, kAnySource, tag);
  request.source = &source;
  return request;
}

}  // namespace requests

}  // namespace tutti
