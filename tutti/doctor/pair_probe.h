#pragma once
// Measures the path from one host to another: whether connections and datagrams get through, how long they take, how
// many bytes a second, and how far the clocks are apart. One side measures and sends commands; the other answers.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tutti/base/deadline.h"
#include "tutti/base/error.h"
#include "tutti/base/fd.h"
#include "tutti/transport/handshake.h"
#include "tutti/transport/socket.h"

namespace tutti::doctor {

// A command from the measuring side: nine bytes, a letter and a number.
struct ProbeCommand {
  enum class Kind : char {
    kClock = 'P',      // answer with the number and your wall clock in nanoseconds, 8 bytes each
    kTake = 'S',       // this many bytes follow; answer with one byte when all are here
    kGive = 'R',       // send this many bytes
    kDatagrams = 'U',  // echo datagrams that begin with this number, from now on; 0: none
    kGoodbye = 'Q',
  };
  static constexpr std::size_t kBytes = 9;
  // The largest transfer that is requested, and that the answering side accepts, in bytes.
  static constexpr std::uint64_t kMostTransfer = std::uint64_t(1) << 30;

  Kind kind = Kind::kGoodbye;
  std::uint64_t number = 0;
  bool operator==(const ProbeCommand&) const = default;
};

std::array<std::byte, ProbeCommand::kBytes> encode(const ProbeCommand& command);
// A command that may be obeyed. kCorrupt: an unknown letter; kLimit: a transfer of more than kMostTransfer.
Result<ProbeCommand> parse_probe_command(std::span<const std::byte, ProbeCommand::kBytes> bytes);

// What was measured; -1 for what was not, and then a sentence says why.
struct PairMeasure {
  int from = 0, to = 1;          // nodes; `from` connected and measured
  std::string trouble;           // why `from` could not connect to `to`
  std::string back_trouble;      // why `to` could not connect to `from`
  std::string bulk_trouble;      // why large transfers failed although small ones passed
  double latency = -1;           // seconds for 8 bytes one way over TCP: half the median round trip
  double there = -1, back = -1;  // bytes a second from `from` to `to`, and from `to` to `from`
  double datagram_latency = -1;  // seconds one way over UDP
  double datagrams_lost = 1;     // the share of missing echoes
  double clock_offset = 0;       // `to`'s wall clock minus `from`'s, in seconds
  double clock_error = -1;       // how far off clock_offset may be
};

std::string to_json(const PairMeasure& measure);
Result<PairMeasure> pair_measure_from_json(const std::string& text);

// Where a host can be reached: a listener and a socket for datagrams, both at one address and any port.
class ProbePoint {
 public:
  static Result<ProbePoint> open(const std::string& host);
  const transport::Address& stream() const { return listener_.address; }
  const transport::Address& datagrams() const { return datagram_address_; }

  // Waits for the peer to connect, and answers until it has said goodbye, or until `over`, a descriptor, becomes
  // readable: the peer has reported elsewhere that it is done, or could not connect. Connections without the secret are
  // closed.
  Status answer(int peer, const transport::Credentials& credentials, int over, Deadline deadline);

 private:
  transport::Listener listener_;
  Fd datagrams_;
  transport::Address datagram_address_;
};

struct ProbeTarget {
  transport::Address stream, datagrams;
};
struct ProbeLimits {
  Duration connect = std::chrono::seconds(5);         // also for an answer to a small message
  Duration bulk = std::chrono::seconds(5);            // for the bytes of one transfer
  Duration measure = std::chrono::milliseconds(200);  // transfers grow until one takes this long
  int pings = 100;
  int datagrams = 20;
};
// Connects and measures. Failures are in the result. Without `full`: only whether the path is open.
PairMeasure probe(int from, int to, const ProbeTarget& target, const transport::Credentials& credentials, bool full,
                  const ProbeLimits& limits = {});

}  // namespace tutti::doctor
