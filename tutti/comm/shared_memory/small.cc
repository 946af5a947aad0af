// An operation of a few bytes takes about as long as its two cache misses, one of a few KiB as long as two barriers. So
// the overhead matters: nothing here allocates, reads the clock, or copies the Request. (A vector load of fields just
// written by scalar stores waits until the stores have left the store buffer.)
#include "tutti/comm/shared_memory/small.h"

#include <cstring>
#include <span>

#include "tutti/base/pause.h"
#include "tutti/comm/group/flight.h"
#include "tutti/comm/kernels/reduce.h"

namespace tutti::comm {
namespace {

constexpr int kMostRanks = 64;  // limit for arrays on the stack
constexpr std::size_t kMostSummed = std::size_t(64) << 10;

bool meet_soon(const DirectChannel& channel, std::uint64_t word, int& tries) {
  for (int next = 0; channel.meet(word, next) != DirectChannel::Arrivals::kComplete;) {
    if (--tries <= 0) return false;
    if (tries % kTriesPerCoreCheck == 0 && channel.awaits_this_core(word, next)) return false;
    pause_cpu();
  }
  return true;
}

// Called after the post, while the peers' lines are in transit.
void put_on_record(InlineCall& call, const Request& r, trace::FlightRing* flight, std::atomic<std::uint64_t>& sequence,
                   CallSite at) {
  call.sequence = sequence.fetch_add(1, std::memory_order_relaxed) + 1;
  if (flight) flight->started(call.sequence, flight_call(r, at, FlightPath::kDirect));
}

// An all_reduce of a few KiB between arenas, with the protocol of DirectOperation, which may take over after either
// barrier.
InlineCall try_inline_sum(DirectChannel& channel, const Request& r, std::size_t bytes, int tries,
                          trace::FlightRing* flight, std::atomic<std::uint64_t>& sequence, CallSite at) {
  const int rank = channel.rank(), size = channel.size();
  const std::uint64_t slots = channel.slots_if_there();
  const std::uint64_t in = channel.place_of(r.in, bytes), out = r.out == r.in ? in : channel.place_of(r.out, bytes);
  if (slots == 0 || in == 0 || out == 0 || channel.shares_work()) return {};
  const std::uint64_t shape = pack_shape(r);
  const std::uint16_t fingerprint = fingerprint_of(r);
  InlineCall call{
      .word = channel.post(fingerprint, {.in = in, .out = out, .slots = slots, .count = r.count, .shape = shape})};
  put_on_record(call, r, flight, sequence, at);
  if (!meet_soon(channel, call.word, tries)) return call;
  const CallLine* const lines = channel.lines(DirectChannel::tick_of(call.word));
  const std::size_t element = size_of(r.dtype);
  const auto [begin, end] = own_slice(r.count, element, rank, size);
  const void* ins[kMostRanks];
  void* outs[kMostRanks];
  for (int k = 0; k < size; ++k) {
    Descriptor theirs;
    std::memcpy(&theirs, lines[k].payload, sizeof theirs);
    if (theirs.in == 0 || theirs.out == 0 || theirs.shape != shape || theirs.count != r.count) return call;
    ins[k] = channel.resolve(theirs.in) + begin * element;
    outs[k] = channel.resolve(theirs.out) + begin * element;
  }
  reduce_many(r.dtype, r.op, std::span(ins).first(std::size_t(size)), std::span(outs).first(std::size_t(size)),
              end - begin, r.op == ReduceOp::kAvg ? size : 1);
  call.word = channel.post(fingerprint, nullptr, 0);
  call.is_leaving = true;
  if (!meet_soon(channel, call.word, tries)) return call;
  if (flight) flight->completed_at_once(call.sequence);
  call.done = true;
  return call;
}

}  // namespace

InlineCall try_inline(DirectChannel& channel, const Request& r, int tries, trace::FlightRing* flight,
                      std::atomic<std::uint64_t>& sequence, CallSite at) {
  const int rank = channel.rank(), size = channel.size();
  const std::size_t bytes = contributed(r, size);
  if (bytes > kMostSummed || size > kMostRanks || !r.in_splits.empty() || is_uneven(r.kind) ||
      r.op == ReduceOp::kPremulSum)
    return {};
  if (bytes > kOneShotBytes && r.kind == Kind::kAllReduce)
    return try_inline_sum(channel, r, bytes, tries, flight, sequence, at);
  if (bytes > kInlineBytes) return {};
  InlineCall call{.word = channel.post(fingerprint_of(r), given(r), gives(r, rank) ? bytes : 0)};
  put_on_record(call, r, flight, sequence, at);
  if (!meet_soon(channel, call.word, tries)) return call;
  const CallLine* const lines = channel.lines(DirectChannel::tick_of(call.word));
  const void* parts[kMostRanks];
  for (int k = 0; k < size; ++k) parts[k] = lines[k].payload;
  finish_small(r, rank, size, std::span(parts).first(std::size_t(size)));
  channel.spread_now_and_then();
  if (flight) flight->completed_at_once(call.sequence);
  call.done = true;
  return call;
}

void finish_small(const Request& r, int rank, int size, std::span<const void*> parts, const double* factors) {
  if (!gets(r, rank)) return;
  if (is_reduction(r.kind)) {
    if (r.kind == Kind::kAllReduce && r.dtype == DType::kF32 && r.op == ReduceOp::kSum && r.count <= 2) {
      for (std::size_t i = 0; i < r.count; ++i) {  // losses, norms, flags
        float sum = static_cast<const float*>(parts[0])[i];
        for (int k = 1; k < size; ++k) sum += static_cast<const float*>(parts[k])[i];
        static_cast<float*>(r.out)[i] = sum;
      }
      return;
    }
    const Stretch own = stretch_of(r, rank, rank, rank);
    if (own.count == 0) return;  // the buffers may be null
    const std::size_t before = own.in_begin * size_of(r.dtype);
    for (const void*& part : parts) part = static_cast<const std::byte*>(part) + before;
    void* const outs[] = {r.out};
    const int added = summands(r.kind, rank, size);
    reduce_many(r.dtype, r.op, parts.first(std::size_t(added)), outs, own.count, r.op == ReduceOp::kAvg ? added : 1,
                factors);
    return;
  }
  const bool is_one_buffer = verb(r.kind).in == Verb::Buffer::kNone;
  const std::size_t element = size_of(r.dtype);
  for (int from = 0; from < size; ++from) {
    if (!gives(r, from) || (from == rank && is_one_buffer)) continue;
    const Stretch s = stretch_of(r, rank, from, rank);
    if (s.count > 0)
      std::memcpy(static_cast<std::byte*>(r.out) + s.out_begin * element,
                  static_cast<const std::byte*>(parts[from]) + s.in_begin * element, s.count * element);
  }
}

}  // namespace tutti::comm
