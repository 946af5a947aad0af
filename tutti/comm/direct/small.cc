// An operation of a few bytes takes about as long as its two cache misses, so what stands around them counts: nothing
// here allocates, asks for the time, or copies the Request (a vector load of fields just written by scalar stores waits
// for the stores to leave).
#include "tutti/comm/direct/small.h"

#include <cstring>
#include <span>

#include "tutti/base/pause.h"
#include "tutti/comm/group/flight.h"
#include "tutti/comm/kernels/reduce.h"
#include "tutti/comm/parts.h"

namespace tutti {
namespace {

constexpr int kMostRanks = 64;  // of which the places are kept on the stack

}  // namespace

AtOnce call_at_once(DirectChannel& channel, const Request& r, int tries, FlightRing* flight, std::uint64_t sequence,
                    CallSite at) {
  const int rank = channel.rank(), size = channel.size();
  const std::size_t bytes = contributed(r, size);
  if (bytes > kInlineBytes || size > kMostRanks || !r.in_splits.empty() || is_uneven(r.kind) ||
      r.op == ReduceOp::kPremulSum)
    return {};
  AtOnce call{.word = channel.post(fingerprint_of(r), given(r), gives(r, rank) ? bytes : 0)};
  // The peers' lines are on their way meanwhile.
  if (flight) flight->started(sequence, flight_call(r, at, FlightWay::kDirect));
  for (int next = 0; channel.meet(call.word, next) != DirectChannel::Meeting::kComplete;) {
    if (--tries <= 0) return call;
    pause_cpu();
  }
  const CallLine* const lines = channel.lines(DirectChannel::tick_of(call.word));
  const void* parts[kMostRanks];
  for (int k = 0; k < size; ++k) parts[k] = lines[k].payload;
  finish_small(r, rank, size, std::span(parts).first(std::size_t(size)));
  channel.spread_now_and_then();
  if (flight) flight->completed_at_once(sequence);
  call.done = true;
  return call;
}

void finish_small(const Request& r, int rank, int size, std::span<const void*> parts, const double* factors) {
  const std::size_t bytes = r.count * size_of(r.dtype);
  if (bytes == 0 && !is_uneven(r.kind)) return;  // buffers may lie nowhere
  const int divisor = r.op == ReduceOp::kAvg ? size : 1;
  const auto part = [&](int from, int index) {
    return static_cast<const std::byte*>(parts[from]) + std::size_t(index) * bytes;
  };
  const auto out = [&](int index) { return static_cast<std::byte*>(r.out) + std::size_t(index) * bytes; };
  switch (r.kind) {
    case Kind::kReduce:
      if (rank != r.root) break;
      [[fallthrough]];
    case Kind::kAllReduce: {
      if (r.dtype == DType::kF32 && r.op == ReduceOp::kSum && r.count <= 2) {  // losses, norms, flags
        for (std::size_t i = 0; i < r.count; ++i) {
          float sum = static_cast<const float*>(parts[0])[i];
          for (int k = 1; k < size; ++k) sum += static_cast<const float*>(parts[k])[i];
          static_cast<float*>(r.out)[i] = sum;
        }
        break;
      }
      void* const outs[] = {r.out};
      reduce_many(r.dtype, r.op, parts, outs, r.count, divisor, factors);
      break;
    }
    case Kind::kBroadcast:
      if (rank != r.root) std::memcpy(r.out, parts[r.root], bytes);
      break;
    case Kind::kGather:
      if (rank != r.root) break;
      [[fallthrough]];
    case Kind::kAllGather:
      for (int k = 0; k < size; ++k) std::memcpy(out(k), parts[k], bytes);
      break;
    case Kind::kScatter:
      std::memcpy(r.out, part(r.root, rank), bytes);
      break;
    case Kind::kReduceScatter: {
      for (int k = 0; k < size; ++k) parts[k] = part(k, rank);
      void* const outs[] = {r.out};
      reduce_many(r.dtype, r.op, parts, outs, r.count, divisor, factors);
      break;
    }
    case Kind::kAllToAll:
      for (int k = 0; k < size; ++k) std::memcpy(out(k), part(k, rank), bytes);
      break;
    case Kind::kAllGatherV: {
      const Parts outs(r.count, r.out_splits);
      const std::size_t element = size_of(r.dtype);
      for (int k = 0; k < size; ++k)
        if (outs.count(k) > 0)
          std::memcpy(static_cast<std::byte*>(r.out) + outs.begin(k) * element, parts[k], outs.count(k) * element);
      break;
    }
    case Kind::kReduceScatterV: {
      for (const void*& in : parts) in = static_cast<const std::byte*>(in) + own_part_offset(r, rank);
      void* const outs[] = {r.out};
      reduce_many(r.dtype, r.op, parts, outs, r.in_splits[std::size_t(rank)], divisor, factors);
      break;
    }
    case Kind::kGatherV:  // their way is the large one: not every rank knows how much the others give
    case Kind::kScatterV:
    case Kind::kBarrier:
    case Kind::kSend:
    case Kind::kRecv:
      break;
  }
}

}  // namespace tutti
