#pragma once
// Calls whose data rides in the flag lines, or in a slot of the control block: one meeting, then every rank reads what
// all have given.
#include <cstdint>
#include <span>

#include "tutti/base/call_site.h"
#include "tutti/comm/direct/channel.h"
#include "tutti/trace/flight_ring.h"

namespace tutti {

// What this rank gives to a call without splits, bytes: count elements, times the size of the group where it has parts
// for all.
inline std::size_t contributed(const Request& r, int size) {
  return r.count * size_of(r.dtype) * (gives_parts(r.kind) ? std::size_t(size) : 1);
}
// Whether others read what this rank gives.
inline bool gives(const Request& r, int rank) {
  return r.kind == Kind::kBroadcast || r.kind == Kind::kScatter || r.kind == Kind::kScatterV ? rank == r.root
                                                                                             : r.kind != Kind::kBarrier;
}
inline const void* given(const Request& r) { return r.kind == Kind::kBroadcast ? r.out : r.in; }

// The output of this rank, once every rank's contribution is readable: parts[rank]; for a premultiplied sum also the
// factors, by rank. `parts` is changed. Allocates nothing.
void finish_small(const Request& request, int rank, int size, std::span<const void*> parts,
                  const double* factors = nullptr);

// A call from end to end on the caller's stack, for as long as that means a short spin.
struct AtOnce {
  std::uint64_t word = 0;  // 0: nothing has been posted, the call is not for this way. Else what this rank has posted
  bool done = false;       // the output is written. Else the peers have yet to post theirs
};
// What is posted stands in `flight` (null: nowhere) as number `sequence`.
AtOnce call_at_once(DirectChannel& channel, const Request& request, int tries, FlightRing* flight,
                    std::uint64_t sequence, CallSite at);

}  // namespace tutti
