#pragma once
// A Link between two threads of one process over a network that is not there: bytes arrive when a network of given
// latency, bandwidth and jitter would have brought them, in pieces of random sizes. For trying the plans, and what runs
// over links, on a slow, long or unsteady network without one (comm/inproc_world.h). The simulator
// (comm/plans/simulator) predicts such times by a clock of its own; here they pass.
//
// What is modelled: each direction of each link is a wire of its own, so ranks of a host do not share a card, and
// nothing is lost. Bytes are due `latency` after the wire has taken them, grown by up to `jitter` as a share, drawn
// anew for each piece, and never before those sent earlier.
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "tutti/transport/link.h"

namespace tutti::transport {

struct SimOptions {
  double latency = 10e-6;                // seconds
  double bandwidth = 1e9;                // bytes a second, in each direction
  double overhead = 0;                   // seconds for which each piece keeps the wire busy besides its bytes
  double jitter = 0;                     // share of the latency
  std::size_t largest_piece = 64 << 10;  // bytes that arrive together; a piece has 1 to this many
  std::size_t capacity = 1 << 20;        // bytes that are under way or not received yet, in each direction
  std::uint64_t seed = 1;                // the pieces and their jitter are a function of it
};

// Two ends; one that is destroyed is a peer that is gone, once its last bytes have arrived. `ring_first` and
// `ring_second` wake the owner of that end when bytes were sent to it or taken from it, as make_inproc_links() says. A
// blocked end has no descriptor: it is rung, and told by look_again() when bytes that are under way are due.
std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> make_sim_links(const SimOptions& options,
                                                                       std::function<void()> ring_first = {},
                                                                       std::function<void()> ring_second = {});

}  // namespace tutti::transport
