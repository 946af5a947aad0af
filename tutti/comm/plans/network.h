#pragma once
// The simulator's model of the machines: the alpha-beta-gamma model, with one set of figures for links inside a host
// and one for links between hosts.
#include <cstddef>
#include <limits>
#include <vector>

namespace tutti {

struct LinkCost {
  double latency = 0;    // alpha: seconds from the departure of the first byte to its arrival
  double bandwidth = 0;  // 1 / beta: bytes per second in each direction
  double overhead = 0;   // seconds that each message occupies the sender's port, in addition to its bytes
};

// Each rank has its own port to the other ranks of its host. The ranks of a host share its cards to the other hosts. A
// card transfers in both directions at once; the rank with place p on its host uses card p mod cards. At both ends
// messages queue for a port or card in arrival order. They are not stored in between: a lone message of b bytes takes
// overhead + latency + b / bandwidth.
struct Network {
  LinkCost inside{1e-6, 20e9, 0.2e-6};
  LinkCost between{10e-6, 12.5e9, 1e-6};
  int cards = 1;                                                    // per host; `between.bandwidth` is that of one card
  double add_bandwidth = 10e9;                                      // 1 / gamma: bytes per second that a rank adds
  double copy_bandwidth = std::numeric_limits<double>::infinity();  // bytes per second that a rank copies
  bool crowded = false;     // ranks outnumber cores: transfers inside and between hosts do not overlap
  double jitter = 0;        // a message's latency grows by up to this fraction
  std::size_t header = 32;  // bytes that precede the first message of each stream (comm/links/call_header.h)
  // A stream holds at most this many bytes that were sent and not received. A send of more bytes ends when a receive has
  // taken the rest. A plan that relies on more buffering than its links have comes to a halt.
  std::size_t stream_bytes = kUnbounded;
  static constexpr std::size_t kUnbounded = ~std::size_t(0);
};

// Faults to simulate. Times are in seconds from the start.
struct Faults {
  struct Death {
    int rank;
    double at;
  };
  struct Cut {  // in both directions; bytes that have not arrived by then are lost
    int a, b;
    double at;
  };
  struct Slow {  // sends, additions and copies take `factor` times as long
    int rank;
    double factor;
  };
  std::vector<Death> deaths{};
  std::vector<Cut> cuts{};
  std::vector<Slow> slow{};
};

}  // namespace tutti
