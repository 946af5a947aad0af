#pragma once
// The verbs on typed spans. The plain form blocks and throws Exception. The ..._async form (isend, irecv) returns a
// Work, and the memory must stay valid until the Work has ended. comm/request.h defines the shapes. T is float, double,
// Half, BFloat16, std::int8_t, std::uint8_t, std::int32_t, std::int64_t, bool, std::complex<float>,
// std::complex<double>. The last argument `at` is the call site for the flight recorder. A function of yours that wraps
// a verb may pass on the call site of its own caller.
#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <vector>

#include "tutti/comm/coalesced.h"
#include "tutti/comm/group.h"
#include "tutti/comm/typed_request.h"

namespace tutti {

// In place.
template <class T>
void all_reduce(const Group& group, std::span<T> data, Reduction op = ReduceOp::kSum, CallSite at = CallSite::here()) {
  group.run(requests::all_reduce(data, op), at).or_throw();
}
template <class T>
Work all_reduce_async(const Group& group, std::span<T> data, Reduction op = ReduceOp::kSum,
                      CallSite at = CallSite::here()) {
  return group.submit(requests::all_reduce(data, op), at);
}
// A single number.
template <class T>
T all_reduce(const Group& group, T value, Reduction op = ReduceOp::kSum,
             CallSite at = CallSite::here()) requires std::is_arithmetic_v<T> {
  all_reduce(group, std::span<T>(&value, 1), op, at);
  return value;
}
// `out` is written on the root and may be empty elsewhere.
template <class T>
void reduce(const Group& group, std::span<const T> in, std::span<T> out, int root, Reduction op = ReduceOp::kSum,
            CallSite at = CallSite::here()) {
  group.run(requests::reduce(group, in, out, root, op), at).or_throw();
}
template <class T>
Work reduce_async(const Group& group, std::span<const T> in, std::span<T> out, int root, Reduction op = ReduceOp::kSum,
                  CallSite at = CallSite::here()) {
  return group.submit(requests::reduce(group, in, out, root, op), at);
}
// Rank r gets the reduction of the inputs of ranks 0 to r, added in rank order. In place if `in` is `out`.
template <class T>
void scan(const Group& group, std::span<const T> in, std::span<T> out, Reduction op = ReduceOp::kSum,
          CallSite at = CallSite::here()) {
  group.run(requests::scan(Kind::kScan, group, in, out, op), at).or_throw();
}
template <class T>
Work scan_async(const Group& group, std::span<const T> in, std::span<T> out, Reduction op = ReduceOp::kSum,
                CallSite at = CallSite::here()) {
  return group.submit(requests::scan(Kind::kScan, group, in, out, op), at);
}
// Rank r gets the reduction of the inputs of ranks 0 to r - 1. Rank 0 gets nothing: its `out` is not written and may be
// empty.
template <class T>
void exscan(const Group& group, std::span<const T> in, std::span<T> out, Reduction op = ReduceOp::kSum,
            CallSite at = CallSite::here()) {
  group.run(requests::scan(Kind::kExscan, group, in, out, op), at).or_throw();
}
template <class T>
Work exscan_async(const Group& group, std::span<const T> in, std::span<T> out, Reduction op = ReduceOp::kSum,
                  CallSite at = CallSite::here()) {
  return group.submit(requests::scan(Kind::kExscan, group, in, out, op), at);
}
template <class T>
void broadcast(const Group& group, std::span<T> data, int root = 0, CallSite at = CallSite::here()) {
  group.run(requests::broadcast(data, root), at).or_throw();
}
template <class T>
Work broadcast_async(const Group& group, std::span<T> data, int root = 0, CallSite at = CallSite::here()) {
  return group.submit(requests::broadcast(data, root), at);
}
template <class T>
void all_gather(const Group& group, std::span<const T> in, std::span<T> out, CallSite at = CallSite::here()) {
  group.run(requests::all_gather(group, in, out), at).or_throw();
}
template <class T>
Work all_gather_async(const Group& group, std::span<const T> in, std::span<T> out, CallSite at = CallSite::here()) {
  return group.submit(requests::all_gather(group, in, out), at);
}
// `out` is written on the root and may be empty elsewhere.
template <class T>
void gather(const Group& group, std::span<const T> in, std::span<T> out, int root, CallSite at = CallSite::here()) {
  group.run(requests::gather(group, in, out, root), at).or_throw();
}
template <class T>
Work gather_async(const Group& group, std::span<const T> in, std::span<T> out, int root,
                  CallSite at = CallSite::here()) {
  return group.submit(requests::gather(group, in, out, root), at);
}
// `in` is read on the root and may be empty elsewhere.
template <class T>
void scatter(const Group& group, std::span<const T> in, std::span<T> out, int root, CallSite at = CallSite::here()) {
  group.run(requests::scatter(group, in, out, root), at).or_throw();
}
template <class T>
Work scatter_async(const Group& group, std::span<const T> in, std::span<T> out, int root,
                   CallSite at = CallSite::here()) {
  return group.submit(requests::scatter(group, in, out, root), at);
}
template <class T>
void reduce_scatter(const Group& group, std::span<const T> in, std::span<T> out, Reduction op = ReduceOp::kSum,
                    CallSite at = CallSite::here()) {
  group.run(requests::reduce_scatter(group, in, out, op), at).or_throw();
}
template <class T>
Work reduce_scatter_async(const Group& group, std::span<const T> in, std::span<T> out, Reduction op = ReduceOp::kSum,
                          CallSite at = CallSite::here()) {
  return group.submit(requests::reduce_scatter(group, in, out, op), at);
}
template <class T>
void all_to_all(const Group& group, std::span<const T> in, std::span<T> out, CallSite at = CallSite::here()) {
  group.run(requests::all_to_all(group, in, out), at).or_throw();
}
template <class T>
Work all_to_all_async(const Group& group, std::span<const T> in, std::span<T> out, CallSite at = CallSite::here()) {
  return group.submit(requests::all_to_all(group, in, out), at);
}
// Uneven parts: in_splits[r] elements go to rank r, out_splits[r] elements come from rank r.
template <class T>
void all_to_all(const Group& group, std::span<const T> in, std::span<const std::size_t> in_splits, std::span<T> out,
                std::span<const std::size_t> out_splits, CallSite at = CallSite::here()) {
  group.run(requests::all_to_all(in, in_splits, out, out_splits), at).or_throw();
}
template <class T>
Work all_to_all_async(const Group& group, std::span<const T> in, std::span<const std::size_t> in_splits,
                      std::span<T> out, std::span<const std::size_t> out_splits, CallSite at = CallSite::here()) {
  return group.submit(requests::all_to_all(in, in_splits, out, out_splits), at);
}

// The _v verbs have parts of different sizes, one after another in the large buffer. Parts may be empty. In
// all_gather_v rank r contributes out_splits[r] elements. Every rank passes the same splits.
template <class T>
void all_gather_v(const Group& group, std::span<const T> in, std::span<T> out, std::span<const std::size_t> out_splits,
                  CallSite at = CallSite::here()) {
  group.run(requests::all_gather_v(group, in, out, out_splits), at).or_throw();
}
template <class T>
Work all_gather_v_async(const Group& group, std::span<const T> in, std::span<T> out,
                        std::span<const std::size_t> out_splits, CallSite at = CallSite::here()) {
  return group.submit(requests::all_gather_v(group, in, out, out_splits), at);
}
// Rank r gets the reduced in_splits[r] elements of its part. Every rank passes the same splits.
template <class T>
void reduce_scatter_v(const Group& group, std::span<const T> in, std::span<const std::size_t> in_splits,
                      std::span<T> out, Reduction op = ReduceOp::kSum, CallSite at = CallSite::here()) {
  group.run(requests::reduce_scatter_v(group, in, in_splits, out, op), at).or_throw();
}
template <class T>
Work reduce_scatter_v_async(const Group& group, std::span<const T> in, std::span<const std::size_t> in_splits,
                            std::span<T> out, Reduction op = ReduceOp::kSum, CallSite at = CallSite::here()) {
  return group.submit(requests::reduce_scatter_v(group, in, in_splits, out, op), at);
}
// out_splits[r] is the number of elements of rank r. `out` and out_splits are used on the root and may be empty
// elsewhere.
template <class T>
void gather_v(const Group& group, std::span<const T> in, std::span<T> out, std::span<const std::size_t> out_splits,
              int root, CallSite at = CallSite::here()) {
  group.run(requests::gather_v(group, in, out, out_splits, root), at).or_throw();
}
template <class T>
Work gather_v_async(const Group& group, std::span<const T> in, std::span<T> out,
                    std::span<const std::size_t> out_splits, int root, CallSite at = CallSite::here()) {
  return group.submit(requests::gather_v(group, in, out, out_splits, root), at);
}
// in_splits[r] is the number of elements for rank r. `in` and in_splits are used on the root and may be empty
// elsewhere.
template <class T>
void scatter_v(const Group& group, std::span<const T> in, std::span<const std::size_t> in_splits, std::span<T> out,
               int root, CallSite at = CallSite::here()) {
  group.run(requests::scatter_v(group, in, in_splits, out, root), at).or_throw();
}
template <class T>
Work scatter_v_async(const Group& group, std::span<const T> in, std::span<const std::size_t> in_splits,
                     std::span<T> out, int root, CallSite at = CallSite::here()) {
  return group.submit(requests::scatter_v(group, in, in_splits, out, root), at);
}

// Several buffers at once; small ones are packed into one call. comm/coalesced.h also supports other verbs and mixed
// types. The vectors of spans are copied; the buffers remain the caller's.
template <class T>
CoalescedWork all_reduce_coalesced_async(const Group& group, const std::vector<std::span<T>>& buffers,
                                         Reduction op = ReduceOp::kSum, CallSite at = CallSite::here()) {
  Coalesced together(group);
  for (const std::span<T> data : buffers) together.add(requests::all_reduce(data, op));
  return together.submit(at);
}
template <class T>
void all_reduce_coalesced(const Group& group, const std::vector<std::span<T>>& buffers, Reduction op = ReduceOp::kSum,
                          CallSite at = CallSite::here()) {
  Coalesced together(group);
  for (const std::span<T> data : buffers) together.add(requests::all_reduce(data, op));
  together.run(at);
}
template <class T>
CoalescedWork all_gather_coalesced_async(const Group& group, const std::vector<std::span<const T>>& ins,
                                         const std::vector<std::span<T>>& outs, CallSite at = CallSite::here()) {
  TUTTI_REQUIRE(ins.size() == outs.size(), "all_gather_coalesced: ", ins.size(), " inputs and ", outs.size(),
                " outputs");
  Coalesced together(group);
  for (std::size_t i = 0; i < ins.size(); ++i) together.add(requests::all_gather(group, ins[i], outs[i]));
  return together.submit(at);
}
template <class T>
void all_gather_coalesced(const Group& group, const std::vector<std::span<const T>>& ins,
                          const std::vector<std::span<T>>& outs, CallSite at = CallSite::here()) {
  all_gather_coalesced_async(group, ins, outs, at).get();
}
template <class T>
CoalescedWork reduce_scatter_coalesced_async(const Group& group, const std::vector<std::span<const T>>& ins,
                                             const std::vector<std::span<T>>& outs, Reduction op = ReduceOp::kSum,
                                             CallSite at = CallSite::here()) {
  TUTTI_REQUIRE(ins.size() == outs.size(), "reduce_scatter_coalesced: ", ins.size(), " inputs and ", outs.size(),
                " outputs");
  Coalesced together(group);
  for (std::size_t i = 0; i < ins.size(); ++i) together.add(requests::reduce_scatter(group, ins[i], outs[i], op));
  return together.submit(at);
}
template <class T>
void reduce_scatter_coalesced(const Group& group, const std::vector<std::span<const T>>& ins,
                              const std::vector<std::span<T>>& outs, Reduction op = ReduceOp::kSum,
                              CallSite at = CallSite::here()) {
  reduce_scatter_coalesced_async(group, ins, outs, op, at).get();
}

template <class T>
Work isend(const Group& group, std::span<const T> data, int peer, int tag = 0, CallSite at = CallSite::here()) {
  return group.submit(requests::send(data, peer, tag), at);
}
template <class T>
Work irecv(const Group& group, std::span<T> data, int peer, int tag = 0, CallSite at = CallSite::here()) {
  return group.submit(requests::recv(data, peer, tag), at);
}
template <class T>
void send(const Group& group, std::span<const T> data, int peer, int tag = 0, CallSite at = CallSite::here()) {
  isend(group, data, peer, tag, at).get();
}
// `data` must have the size that the sender sent.
template <class T>
void recv(const Group& group, std::span<T> data, int peer, int tag = 0, CallSite at = CallSite::here()) {
  irecv(group, data, peer, tag, at).get();
}
// Receives from the first rank that sends with this tag, and returns its number. If several ranks send, they take
// turns. A rank that has left the job regularly is not waited for.
template <class T>
int recv_any(const Group& group, std::span<T> data, int tag = 0, CallSite at = CallSite::here()) {
  std::int32_t source = kAnySource;
  group.run(requests::recv_any(data, source, tag), at).or_throw();
  return source;
}
// `source` is written before the Work ends, and must stay valid as long as the data.
template <class T>
Work irecv_any(const Group& group, std::span<T> data, std::int32_t& source, int tag = 0,
               CallSite at = CallSite::here()) {
  return group.submit(requests::recv_any(data, source, tag), at);
}
// Starts sends and receives together (requests::send, recv, recv_any). Their order, here or on the peers, cannot cause
// a deadlock. Only messages between two ranks with one tag match in their order.
inline Works batch_isend_irecv(const Group& group, std::span<const Request> batch, CallSite at = CallSite::here()) {
  for (const Request& request : batch)
    TUTTI_REQUIRE(is_point_to_point(request.kind), "batch_isend_irecv: ", to_string(request),
                  " is neither a send nor a receive");
  return group.submit(batch, at);
}
inline Works batch_isend_irecv(const Group& group, std::initializer_list<Request> batch,
                               CallSite at = CallSite::here()) {
  return batch_isend_irecv(group, std::span(batch.begin(), batch.size()), at);
}
inline void barrier(const Group& group, CallSite at = CallSite::here()) {
  group.run({.kind = Kind::kBarrier}, at).or_throw();
}
inline Work barrier_async(const Group& group, CallSite at = CallSite::here()) {
  return group.submit({.kind = Kind::kBarrier}, at);
}
// Group::monitored_barrier(), which names the ranks that have not arrived within `limit`. Throws.
inline void monitored_barrier(const Group& group, Duration limit = {}) { group.monitored_barrier(limit).or_throw(); }

}  // namespace tutti
