#pragma once
// One host tries the way to another: whether connections and datagrams get through, how long they take, how many bytes
// a second, and how far the clocks are apart. The other answers.
#include <cstdint>
#include <memory>
#include <string>

#include "tutti/base/deadline.h"
#include "tutti/base/fd.h"
#include "tutti/transport/handshake.h"
#include "tutti/transport/socket.h"

namespace tutti {

// What was measured; -1 for what was not, and then a sentence says why.
struct PairMeasure {
  int from = 0, to = 1;          // nodes; `from` connected and measured
  std::string trouble;           // why `from` could not connect to `to`
  std::string back_trouble;      // why `to` could not connect to `from`
  std::string bulk_trouble;      // why large transfers failed though small ones passed
  double latency = -1;           // seconds for 8 bytes one way over TCP: half the median of there and back
  double there = -1, back = -1;  // bytes a second from `from` to `to`, and from `to` to `from`
  double datagram_latency = -1;  // seconds one way over UDP
  double datagrams_lost = 1;     // the share of the echoes that did not come
  double clock_offset = 0,
         clock_error = -1;  // `to`'s wall clock minus `from`'s, in seconds, and how far off that may be
};

std::string to_json(const PairMeasure& measure);
Result<PairMeasure> pair_measure_from_json(const std::string& text);

// Where a host can be reached: a listener and a socket for datagrams, both at one address and any port.
class ProbePoint {
 public:
  static Result<ProbePoint> open(const std::string& host);
  const Address& stream() const { return listener_.address; }
  const Address& datagrams() const { return datagram_address_; }

  // Waits for the peer, who is to connect, and answers until it has said goodbye, or until `over`, a descriptor,
  // becomes readable: the peer has told elsewhere that it is done, or could not come. Strangers are turned away.
  Status answer(int peer, const Credentials& credentials, int over, Deadline deadline);

 private:
  Listener listener_;
  Fd datagrams_;
  Address datagram_address_;
};

struct ProbeTarget {
  Address stream, datagrams;
};
struct ProbeLimits {
  Duration connect = std::chrono::seconds(5);         // also for an answer to a small message
  Duration bulk = std::chrono::seconds(5);            // for the bytes of one transfer
  Duration measure = std::chrono::milliseconds(200);  // transfers grow until one takes so long
  int pings = 100;
  int datagrams = 20;
};
// Connects and measures. What fails is in the answer. `full` false: only whether the way is open.
PairMeasure probe(int from, int to, const ProbeTarget& target, const Credentials& credentials, bool full,
                  const ProbeLimits& limits = {});

}  // namespace tutti
