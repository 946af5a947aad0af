#pragma once
// Calls whose data fits in the call lines or in a slot of the control block. After one barrier every rank reads all
// contributions.
#include <atomic>
#include <cstdint>
#include <span>

#include "tutti/base/call_site.h"
#include "tutti/comm/layout.h"
#include "tutti/comm/shared_memory/channel.h"
#include "tutti/trace/flight/ring.h"

namespace tutti::comm {

// Bytes that this rank contributes to a call without splits: `count` elements, times the group size if it has one part
// per rank.
inline std::size_t contributed(const Request& r, int size) {
  return r.count * size_of(r.dtype) * (gives_parts(r.kind) ? std::size_t(size) : 1);
}
// Computes the output of this rank once every rank's contribution is readable in parts[rank]. For a premultiplied sum,
// `factors` holds the factors by rank. Changes `parts`. Allocates nothing.
void finish_small(const Request& request, int rank, int size, std::span<const void*> parts,
                  const double* factors = nullptr);

// The state of a call that runs entirely on the caller's stack, as long as it needs only a short spin.
struct InlineCall {
  std::uint64_t word = 0;      // 0: nothing posted, the call cannot run this way; otherwise what this rank has posted
  std::uint64_t sequence = 0;  // the sequence number that the call has taken
  bool is_leaving = false;     // this rank has done its share of the work and has posted that in `word`
  bool done = false;           // the output is written; if false, some peers have not posted yet
};
// The elements of a vector that this rank adds for all ranks: whole cache lines.
struct ElementRange {
  std::size_t begin, end;
};
inline ElementRange own_slice(std::size_t count, std::size_t element, int rank, int size) {
  const std::size_t line = 64 / element, n = std::size_t(size);
  const auto cut = [&](std::size_t r) { return r >= n ? count : count * r / n / line * line; };
  return {cut(std::size_t(rank)), cut(std::size_t(rank) + 1)};
}
// A posted call takes the next number after `sequence`, and is recorded in `flight` under it (null: not recorded).
InlineCall try_inline(DirectChannel& channel, const Request& request, int tries, trace::FlightRing* flight,
                      std::atomic<std::uint64_t>& sequence, CallSite at);

}  // namespace tutti::comm
