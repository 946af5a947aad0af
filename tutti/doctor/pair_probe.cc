// The side that connects is in command. Over the connection, which begins with the handshake of every connection of a
// job, it sends ProbeCommands, and the other side obeys them one after another.
//
// The offset of the clocks is taken from the quickest exchange: the answer was written between its question and its
// arrival, so the offset is wrong by at most half of the round trip.
//
// A path that passes small messages and loses large ones contains a link with a smaller packet size (MTU), and
// something that drops the "too big" notifications. The first transfer, which is small, tells it from a slow path.
#include "tutti/doctor/pair_probe.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/text.h"
#include "tutti/transport/address.h"

namespace tutti::doctor {
namespace {

constexpr std::uint64_t kChannel = 0x0d0c;  // marks these connections: no link of a job has this channel
constexpr std::size_t kChunk = 256 << 10;
constexpr std::uint64_t kFirstTransfer = 256 << 10;
constexpr auto kEchoLimit = std::chrono::milliseconds(300);
constexpr int kSilentEchoes = 5;  // give up after this many without any echo

using ProbeKind = ProbeCommand::Kind;
using Datagram = std::array<std::uint64_t, 2>;  // token, number

std::int64_t wall_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

Result<Fd> datagram_socket(const transport::Address& bind_to, transport::Address* bound) {
  const transport::SocketAddress here = TUTTI_TRY(transport::to_socket_address(bind_to));
  Fd fd(::socket(here.family(), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return system_error(errno, "cannot make a socket for datagrams");
  if (::bind(fd.get(), here.get(), here.length) != 0)
    return system_error(errno, "cannot bind a socket for datagrams at " + to_string(bind_to));
  if (bound) *bound = transport::local_address(fd.get());
  return fd;
}

// Sends back datagrams that carry the token.
void echo(int fd, std::uint64_t token) {
  Datagram datagram{};
  transport::SocketAddress sender;
  for (;;) {
    sender.length = sizeof sender.storage;
    const ssize_t got = ::recvfrom(fd, datagram.data(), sizeof datagram, 0, sender.get(), &sender.length);
    if (got < 0) return;
    if (got == ssize_t(sizeof datagram) && datagram[0] == token && token != 0)
      (void)::sendto(fd, datagram.data(), sizeof datagram, 0, sender.get(), sender.length);
  }
}

Status send_zeros(int fd, std::uint64_t bytes, Deadline deadline) {
  static const std::vector<std::byte> zeros(kChunk);
  while (bytes > 0) {
    const std::size_t part = std::size_t(std::min<std::uint64_t>(bytes, kChunk));
    TUTTI_TRY(transport::send_all(fd, std::span(zeros).first(part), deadline));
    bytes -= part;
  }
  return {};
}

Status take_bytes(int fd, std::uint64_t bytes, Deadline deadline) {
  std::vector<std::byte> chunk(kChunk);
  while (bytes > 0) {
    const std::size_t part = std::size_t(std::min<std::uint64_t>(bytes, kChunk));
    TUTTI_TRY(transport::recv_all(fd, std::span(chunk).first(part), deadline));
    bytes -= part;
  }
  return {};
}

// The side that measures.
class Probing {
 public:
  Probing(int fd, const ProbeTarget& target, const ProbeLimits& limits, PairMeasure& measure)
      : fd_(fd), target_(target), limits_(limits), measure_(measure) {}

  Status ping() {
    std::vector<double> times;
    for (int i = 0; i < limits_.pings; ++i) {
      const std::int64_t before = wall_ns();
      const auto begin = now();
      const std::int64_t theirs = TUTTI_TRY(ask_clock(std::uint64_t(i)));
      times.push_back(seconds_since(begin));
      if (measure_.clock_error >= 0 && times.back() / 2 >= measure_.clock_error) continue;
      measure_.clock_error = times.back() / 2;
      measure_.clock_offset = double(theirs - before) / 1e9 - times.back() / 2;
    }
    measure_.latency = median(times) / 2;
    return {};
  }

  // Grows the transfer until it takes long enough to be a measure.
  Status transfer(ProbeKind direction, double& rate) {
    for (std::uint64_t bytes = kFirstTransfer;; bytes *= 4) {
      const auto begin = now();
      const Deadline deadline = Deadline::after(limits_.bulk);
      TUTTI_TRY(transport::send_all(fd_, encode({direction, bytes}), deadline));
      if (direction == ProbeKind::kTake) {
        TUTTI_TRY(send_zeros(fd_, bytes, deadline));
        std::byte arrived{};
        TUTTI_TRY(transport::recv_all(fd_, std::span(&arrived, 1), deadline));
      } else {
        TUTTI_TRY(take_bytes(fd_, bytes, deadline));
      }
      const double seconds = seconds_since(begin);
      rate = double(bytes) / seconds;
      if (seconds >= to_seconds(limits_.measure) || bytes >= ProbeCommand::kMostTransfer ||
          4 * seconds > to_seconds(limits_.bulk) / 2)
        return {};
    }
  }

  Status send_datagrams() {
    const Fd socket = TUTTI_TRY(datagram_socket({.host = transport::local_address(fd_).host}, nullptr));
    const transport::SocketAddress there = TUTTI_TRY(transport::to_socket_address(target_.datagrams));
    if (::connect(socket.get(), there.get(), there.length) != 0)
      return system_error(errno, "cannot send datagrams to " + to_string(target_.datagrams));
    const std::uint64_t token = std::uint64_t(wall_ns()) | 1;
    TUTTI_TRY(transport::send_all(fd_, encode({ProbeKind::kDatagrams, token}), Deadline::after(limits_.connect)));
    TUTTI_TRY(ask_clock(0));  // the answer shows that the other side knows the token
    std::vector<double> times;
    int sent = 0;
    while (sent < limits_.datagrams && (!times.empty() || sent < kSilentEchoes)) {
      const Datagram datagram{token, std::uint64_t(++sent)};
      const auto begin = now();
      (void)::send(socket.get(), datagram.data(), sizeof datagram, 0);
      const Deadline deadline = Deadline::after(kEchoLimit);
      while (!deadline.expired() && TUTTI_TRY(transport::wait_readable(socket.get(), deadline))) {
        Datagram answer{};
        const ssize_t got = ::recv(socket.get(), answer.data(), sizeof answer, 0);
        if (got < 0 && errno != EAGAIN) break;  // the other host has refused it
        if (got != ssize_t(sizeof answer) || answer != datagram) continue;
        times.push_back(seconds_since(begin));
        break;
      }
    }
    measure_.datagrams_lost = 1 - double(times.size()) / sent;
    if (!times.empty()) measure_.datagram_latency = median(times) / 2;
    return {};
  }

  Status goodbye() {
    return transport::send_all(fd_, encode({ProbeKind::kGoodbye, 0}), Deadline::after(limits_.connect));
  }

 private:
  Result<std::int64_t> ask_clock(std::uint64_t number) {
    const Deadline deadline = Deadline::after(limits_.connect);
    TUTTI_TRY(transport::send_all(fd_, encode({ProbeKind::kClock, number}), deadline));
    std::array<std::uint64_t, 2> answer{};
    TUTTI_TRY(transport::recv_all(fd_, bytes_of(answer), deadline));
    return std::int64_t(answer[1]);
  }

  const int fd_;
  const ProbeTarget& target_;
  const ProbeLimits& limits_;
  PairMeasure& measure_;
};

// The side that answers one peer.
Status obey(int fd, int datagrams, Deadline deadline) {
  std::uint64_t token = 0;
  for (;;) {
    std::array<pollfd, 2> fds = {{{fd, POLLIN, 0}, {datagrams, POLLIN, 0}}};
    if (::poll(fds.data(), fds.size(), deadline.poll_timeout_ms()) == 0)
      return deadline.error("the peer no longer answers");
    if (fds[1].revents) echo(datagrams, token);
    if (!fds[0].revents) continue;
    std::array<std::byte, ProbeCommand::kBytes> bytes;
    TUTTI_TRY(transport::recv_all(fd, bytes, deadline));
    const ProbeCommand command = TUTTI_TRY(parse_probe_command(bytes));
    switch (command.kind) {
      case ProbeKind::kClock: {
        std::array<std::uint64_t, 2> answer = {command.number, std::uint64_t(wall_ns())};
        TUTTI_TRY(transport::send_all(fd, bytes_of(answer), deadline));
        break;
      }
      case ProbeKind::kTake: {
        TUTTI_TRY(take_bytes(fd, command.number, deadline));
        const std::byte arrived{1};
        TUTTI_TRY(transport::send_all(fd, std::span(&arrived, 1), deadline));
        break;
      }
      case ProbeKind::kGive:
        TUTTI_TRY(send_zeros(fd, command.number, deadline));
        break;
      case ProbeKind::kDatagrams:
        token = command.number;
        break;
      case ProbeKind::kGoodbye:
        return {};
    }
  }
}

constexpr std::string_view kLetters = "PSRUQ";

bool moves_bytes(ProbeCommand::Kind kind) {
  switch (kind) {
    case ProbeCommand::Kind::kTake:
    case ProbeCommand::Kind::kGive:
      return true;
    case ProbeCommand::Kind::kClock:
    case ProbeCommand::Kind::kDatagrams:
    case ProbeCommand::Kind::kGoodbye:
      return false;
  }
  return false;
}

}  // namespace

Result<ProbePoint> ProbePoint::open(const std::string& host) {
  ProbePoint point;
  point.listener_ = TUTTI_TRY(transport::listen({.host = host}));
  point.datagrams_ = TUTTI_TRY(datagram_socket({.host = host}, &point.datagram_address_));
  return point;
}

Status ProbePoint::answer(int peer, const transport::Credentials& credentials, int over, Deadline deadline) {
  for (;;) {
    std::array<pollfd, 2> fds = {{{listener_.fd.get(), POLLIN, 0}, {over, POLLIN, 0}}};
    if (::poll(fds.data(), fds.size(), deadline.poll_timeout_ms()) == 0)
      return deadline.error("node " + std::to_string(peer) + " did not connect");
    if (fds[1].revents) return {};
    const Fd connection = TUTTI_TRY(transport::accept(listener_));
    if (!connection) continue;
    const auto hello = transport::handshake_as_server(connection.get(), credentials, transport::Role::kData,
                                                      deadline.at_most(std::chrono::seconds(5)));
    if (!hello.ok() || hello->rank != peer || hello->channel != kChannel) continue;
    return obey(connection.get(), datagrams_.get(), deadline);
  }
}

PairMeasure probe(int from, int to, const ProbeTarget& target, const transport::Credentials& credentials, bool full,
                  const ProbeLimits& limits) {
  PairMeasure measure{.from = from, .to = to};
  const Deadline deadline = Deadline::after(limits.connect);
  const auto say = [&](std::string& where, const Status& status) {
    if (!status) where = to_string(status.error());
    return status.ok();
  };
  const auto connection = connect(target.stream, deadline);
  if (!say(measure.trouble, connection.status())) return measure;
  const int fd = connection->get();
  if (!say(measure.trouble,
           transport::handshake_as_client(
               fd, credentials, {.role = transport::Role::kData, .rank = from, .channel = kChannel}, deadline)))
    return measure;
  Probing probing(fd, target, limits, measure);
  if (full) {
    if (!say(measure.trouble, probing.ping())) return measure;
    if (!say(measure.trouble, probing.send_datagrams())) return measure;
    if (!say(measure.bulk_trouble, probing.transfer(ProbeKind::kTake, measure.there)) ||
        !say(measure.bulk_trouble, probing.transfer(ProbeKind::kGive, measure.back)))
      return measure;
  }
  (void)probing.goodbye();
  return measure;
}

std::string to_json(const PairMeasure& m) {
  return nlohmann::json{{"from", m.from},
                        {"to", m.to},
                        {"trouble", m.trouble},
                        {"back_trouble", m.back_trouble},
                        {"bulk_trouble", m.bulk_trouble},
                        {"latency", m.latency},
                        {"there", m.there},
                        {"back", m.back},
                        {"datagram_latency", m.datagram_latency},
                        {"datagrams_lost", m.datagrams_lost},
                        {"clock_offset", m.clock_offset},
                        {"clock_error", m.clock_error}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<PairMeasure> pair_measure_from_json(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  PairMeasure measure;
  bool whole = json.is_object();
  const auto take = [&](const char* member, auto& into) {
    using T = std::remove_reference_t<decltype(into)>;
    const auto found = whole ? json.find(member) : json.end();
    whole = whole && found != json.end();
    if constexpr (std::is_same_v<T, std::string>)
      whole = whole && found->is_string();
    else if constexpr (std::is_same_v<T, int>)
      whole = whole && found->is_number_integer() && *found >= 0 && *found <= std::numeric_limits<int>::max();
    else
      whole = whole && found->is_number();
    if (whole) into = found->template get<T>();
  };
  take("from", measure.from), take("to", measure.to);
  take("trouble", measure.trouble), take("back_trouble", measure.back_trouble);
  take("bulk_trouble", measure.bulk_trouble);
  take("latency", measure.latency), take("there", measure.there), take("back", measure.back);
  take("datagram_latency", measure.datagram_latency), take("datagrams_lost", measure.datagrams_lost);
  take("clock_offset", measure.clock_offset), take("clock_error", measure.clock_error);
  if (whole) return measure;
  return Error{.code = Code::kCorrupt, .detail = "the measurements of a node cannot be parsed"};
}

std::array<std::byte, ProbeCommand::kBytes> encode(const ProbeCommand& command) {
  std::array<std::byte, ProbeCommand::kBytes> bytes;
  bytes[0] = std::byte(command.kind);
  std::memcpy(&bytes[1], &command.number, sizeof command.number);
  return bytes;
}

Result<ProbeCommand> parse_probe_command(std::span<const std::byte, ProbeCommand::kBytes> bytes) {
  const char letter = char(bytes[0]);
  if (kLetters.find(letter) == kLetters.npos)
    return Error{.code = Code::kCorrupt,
                 .detail = "the peer speaks another protocol (a command that begins with byte " +
                           std::to_string(int(bytes[0])) + ")"};
  ProbeCommand command{.kind = ProbeCommand::Kind(letter)};
  std::memcpy(&command.number, &bytes[1], sizeof command.number);
  if (moves_bytes(command.kind) && command.number > ProbeCommand::kMostTransfer)
    return Error{.code = Code::kLimit,
                 .detail = "the peer asks for a transfer of " + std::to_string(command.number) +
                           " bytes; a measurement asks for " + std::to_string(ProbeCommand::kMostTransfer) +
                           " at most"};
  return command;
}

}  // namespace tutti::doctor
