#pragma once
// The verbs on typed spans. The plain form blocks and throws Exception; the ..._async form (isend, irecv) returns a
// Work, and the memory has to stay until that has ended. Shapes: see comm/request.h. T is float, double, Half,
// BFloat16, std::int8_t, std::uint8_t, std::int32_t, std::int64_t, bool.
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
  else
    static_assert(sizeof(T) == 0, "no DType for this element type");
}

// A Request from typed spans. What the group cannot see, the sizes of both spans, is checked here: throws Exception.
namespace requests {

template <class T>
Request all_reduce(std::span<T> data, ReduceOp op) {
  return {.kind = Kind::kAllReduce,
          .dtype = dtype_of<T>(),
          .op = op,
          .in = data.data(),
          .out = data.data(),
          .count = data.size()};
}
template <class T>
Request reduce(const Group& group, std::span<const T> in, std::span<T> out, int root, ReduceOp op) {
  TUTTI_REQUIRE(group.rank() != root || out.size() == in.size(), "reduce: out has ", out.size(),
                " elements on the root, expected ", in.size());
  return {.kind = Kind::kReduce,
          .dtype = dtype_of<T>(),
          .op = op,
          .root = root,
          .in = in.data(),
          .out = out.data(),
          .count = in.size()};
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
  TUTTI_REQUIRE(out.size() == in.size() * group.size(), "all_gather: out has ", out.size(), " elements, expected ",
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
Request reduce_scatter(const Group& group, std::span<const T> in, std::span<T> out, ReduceOp op) {
  TUTTI_REQUIRE(in.size() == out.size() * group.size(), "reduce_scatter: in has ", in.size(), " elements, expected ",
                out.size() * group.size());
  return {.kind = Kind::kReduceScatter,
          .dtype = dtype_of<T>(),
          .op = op,
          .in = in.data(),
          .out = out.data(),
          .count = out.size()};
}
template <class T>
Request all_to_all(const Group& group, std::span<const T> in, std::span<T> out) {
  (void)group.rank();  // throws if this is no group, which has no size to divide by
  TUTTI_REQUIRE(in.size() == out.size() && in.size() % group.size() == 0, "all_to_all: in has ", in.size(), " and out ",
                out.size(), " elements, expected equal multiples of ", group.size());
  return {.kind = Kind::kAllToAll,
          .dtype = dtype_of<T>(),
          .in = in.data(),
          .out = out.data(),
          .count = in.size() / group.size()};
}
template <class T>
Request all_to_all(std::span<const T> in, std::span<const std::size_t> in_splits, std::span<T> out,
                   std::span<const std::size_t> out_splits) {
  const auto sum = [](std::span<const std::size_t> splits) {
    return std::accumulate(splits.begin(), splits.end(), std::size_t(0));
  };
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

}  // namespace requests

// In place.
template <class T>
void all_reduce(const Group& group, std::span<T> data, ReduceOp op = ReduceOp::kSum) {
  group.run(requests::all_reduce(data, op)).or_throw();
}
template <class T>
Work all_reduce_async(const Group& group, std::span<T> data, ReduceOp op = ReduceOp::kSum) {
  return group.submit(requests::all_reduce(data, op));
}
// One number.
template <class T>
T all_reduce(const Group& group, T value, ReduceOp op = ReduceOp::kSum) requires std::is_arithmetic_v<T> {
  all_reduce(group, std::span<T>(&value, 1), op);
  return value;
}
// `out` is written on the root and may be empty elsewhere.
template <class T>
void reduce(const Group& group, std::span<const T> in, std::span<T> out, int root, ReduceOp op = ReduceOp::kSum) {
  group.run(requests::reduce(group, in, out, root, op)).or_throw();
}
template <class T>
Work reduce_async(const Group& group, std::span<const T> in, std::span<T> out, int root, ReduceOp op = ReduceOp::kSum) {
  return group.submit(requests::reduce(group, in, out, root, op));
}
template <class T>
void broadcast(const Group& group, std::span<T> data, int root = 0) {
  group.run(requests::broadcast(data, root)).or_throw();
}
template <class T>
Work broadcast_async(const Group& group, std::span<T> data, int root = 0) {
  return group.submit(requests::broadcast(data, root));
}
template <class T>
void all_gather(const Group& group, std::span<const T> in, std::span<T> out) {
  group.run(requests::all_gather(group, in, out)).or_throw();
}
template <class T>
Work all_gather_async(const Group& group, std::span<const T> in, std::span<T> out) {
  return group.submit(requests::all_gather(group, in, out));
}
// `out` is written on the root and may be empty elsewhere.
template <class T>
void gather(const Group& group, std::span<const T> in, std::span<T> out, int root) {
  group.run(requests::gather(group, in, out, root)).or_throw();
}
template <class T>
Work gather_async(const Group& group, std::span<const T> in, std::span<T> out, int root) {
  return group.submit(requests::gather(group, in, out, root));
}
// `in` is read on the root and may be empty elsewhere.
template <class T>
void scatter(const Group& group, std::span<const T> in, std::span<T> out, int root) {
  group.run(requests::scatter(group, in, out, root)).or_throw();
}
template <class T>
Work scatter_async(const Group& group, std::span<const T> in, std::span<T> out, int root) {
  return group.submit(requests::scatter(group, in, out, root));
}
template <class T>
void reduce_scatter(const Group& group, std::span<const T> in, std::span<T> out, ReduceOp op = ReduceOp::kSum) {
  group.run(requests::reduce_scatter(group, in, out, op)).or_throw();
}
template <class T>
Work reduce_scatter_async(const Group& group, std::span<const T> in, std::span<T> out, ReduceOp op = ReduceOp::kSum) {
  return group.submit(requests::reduce_scatter(group, in, out, op));
}
template <class T>
void all_to_all(const Group& group, std::span<const T> in, std::span<T> out) {
  group.run(requests::all_to_all(group, in, out)).or_throw();
}
template <class T>
Work all_to_all_async(const Group& group, std::span<const T> in, std::span<T> out) {
  return group.submit(requests::all_to_all(group, in, out));
}
// Uneven parts: in_splits[r] elements go to rank r, out_splits[r] come from rank r.
template <class T>
void all_to_all(const Group& group, std::span<const T> in, std::span<const std::size_t> in_splits, std::span<T> out,
                std::span<const std::size_t> out_splits) {
  group.run(requests::all_to_all(in, in_splits, out, out_splits)).or_throw();
}
template <class T>
Work all_to_all_async(const Group& group, std::span<const T> in, std::span<const std::size_t> in_splits,
                      std::span<T> out, std::span<const std::size_t> out_splits) {
  return group.submit(requests::all_to_all(in, in_splits, out, out_splits));
}
template <class T>
Work isend(const Group& group, std::span<const T> data, int peer, int tag = 0) {
  return group.submit(
      {.kind = Kind::kSend, .dtype = dtype_of<T>(), .root = peer, .tag = tag, .in = data.data(), .count = data.size()});
}
template <class T>
Work irecv(const Group& group, std::span<T> data, int peer, int tag = 0) {
  return group.submit({.kind = Kind::kRecv,
                       .dtype = dtype_of<T>(),
                       .root = peer,
                       .tag = tag,
                       .out = data.data(),
                       .count = data.size()});
}
template <class T>
void send(const Group& group, std::span<const T> data, int peer, int tag = 0) {
  isend(group, data, peer, tag).get();
}
// In place: `data` must have the size that the sender sent.
template <class T>
void recv(const Group& group, std::span<T> data, int peer, int tag = 0) {
  irecv(group, data, peer, tag).get();
}
inline void barrier(const Group& group) { group.run({.kind = Kind::kBarrier}).or_throw(); }
inline Work barrier_async(const Group& group) { return group.submit({.kind = Kind::kBarrier}); }

}  // namespace tutti
