#pragma once
// What the simulator knows of the machines: the alpha-beta-gamma model, with one pair of figures inside a host and one
// between hosts.
#include <cstddef>
#include <limits>
#include <vector>

namespace tutti {

struct LinkCost {
  double latency = 0;    // seconds from the first byte's leaving to its arrival: alpha
  double bandwidth = 0;  // bytes a second in each direction: 1 / beta
  double overhead = 0;   // seconds for which a message keeps the sender's port busy besides its bytes
};

// A rank has a port of its own to the ranks of its host; the ranks of a host share its cards to the other hosts, each
// card in both directions at once (rank of place p uses card p mod cards). Messages queue for a port or a card in the
// order in which they come, at both ends, and flow through without being stored in between: a lone message of b bytes
// takes overhead + latency + b / bandwidth.
struct Network {
  LinkCost inside{1e-6, 20e9, 0.2e-6};
  LinkCost between{10e-6, 12.5e9, 1e-6};
  int cards = 1;                                                    // of each host; `between.bandwidth` is a card's
  double add_bandwidth = 10e9;                                      // bytes a second that a rank adds: 1 / gamma
  double copy_bandwidth = std::numeric_limits<double>::infinity();  // bytes a second that a rank copies
  bool crowded = false;     // ranks outnumber the cores: what some send inside and others between hosts takes turns
  double jitter = 0;        // a message's latency grows by up to this share
  std::size_t header = 32;  // bytes that open the first message of each stream (comm/links/call_header.h)
  // A stream holds at most this many bytes that were sent and not received. A send of more bytes ends when a receive has
  // taken the rest. A plan that relies on more buffering than its links have comes to a halt.
  std::size_t stream_bytes = kUnbounded;
  static constexpr std::size_t kUnbounded = ~std::size_t(0);
};

// What goes wrong, and when (seconds from the start).
struct Faults {
  struct Death {
    int rank;
    double at;
  };
  struct Cut {  // between two ranks, both ways: what has not arrived by then never does
    int a, b;
    double at;
  };
  struct Slow {  // sends, adds and copies take `factor` times as long
    int rank;
    double factor;
  };
  std::vector<Death> deaths{};
  std::vector<Cut> cuts{};
  std::vector<Slow> slow{};
};

}  // namespace tutti
