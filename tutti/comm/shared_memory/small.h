#pragma once
// Calls whose data rides in the flag lines, or in a slot of the control block: one meeting, then every rank reads what
// all have given.
#include <atomic>
#include <cstdint>
#include <span>

#include "tutti/base/call_site.h"
#include "tutti/comm/layout.h"
#include "tutti/comm/shared_memory/channel.h"
#include "tutti/trace/flight/ring.h"

namespace tutti {

// What this rank gives to a call without splits, bytes: count elements, times the size of the group where it has parts
// for all.
inline std::size_t contributed(const Request& r, int size) {
  return r.count * size_of(r.dtype) * (gives_parts(r.kind) ? std::size_t(size) : 1);
}
// The output of this rank, once every rank's contribution is readable: parts[rank]; for a premultiplied sum also the
// factors, by rank. `parts` is changed. Allocates nothing.
void finish_small(const Request& request, int rank, int size, std::span<const void*> parts,
                  const double* factors = nullptr);

// A call from end to end on the caller's stack, for as long as that means a short spin.
struct AtOnce {
  std::uint64_t word = 0;  // 0: nothing has been posted, the call is not for this way. Else what this rank has posted
  std::uint64_t sequence = 0;  // the number that the call has then taken
  bool is_leaving = false;     // this rank has done its part of the work, `word` says so
  bool done = false;           // the output is written. Else the peers have yet to post theirs
};
// The elements of a vector that this rank adds for all: whole cache lines.
struct ElementRange {
  std::size_t begin, end;
};
inline ElementRange own_slice(std::size_t count, std::size_t element, int rank, int size) {
  const std::size_t line = 64 / element, n = std::size_t(size);
  const auto cut = [&](std::size_t r) { return r >= n ? count : count * r / n / line * line; };
  return {cut(std::size_t(rank)), cut(std::size_t(rank) + 1)};
}
// A call that is posted takes the next number after `sequence`, under which it stands in `flight` (null: nowhere).
AtOnce call_at_once(DirectChannel& channel, const Request& request, int tries, FlightRing* flight,
                    std::atomic<std::uint64_t>& sequence, CallSite at);

}  // namespace tutti
