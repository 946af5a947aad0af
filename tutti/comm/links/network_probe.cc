// The latency is the minimum of several round trips, because every disturbance only adds to it. The bandwidth is the
// best of several transfers of one MiB, because a connection starts slowly.
#include "tutti/comm/links/network_probe.h"

#include <poll.h>
#include <sched.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

#include "tutti/base/text.h"

namespace tutti::comm {
namespace {

enum Command : unsigned char { kEcho, kSwallow, kEnd };
constexpr std::size_t kShort = 64, kLong = 1 << 20;  // bytes, including the command
constexpr double kFar = 0.01;  // round trip in seconds; above it one MiB takes many round trips, so one measurement
                               // must do
constexpr Duration kPatience = std::chrono::milliseconds(10), kLongPatience = std::chrono::milliseconds(50);

template <class Try>
Status all(transport::Link& link, std::span<std::byte> bytes, short event, Deadline deadline, const Try& attempt) {
  for (std::size_t done = 0; done < bytes.size();) {
    const iovec rest{bytes.data() + done, bytes.size() - done};
    const std::size_t moved = TUTTI_TRY(attempt(std::span(&rest, 1)));
    done += moved;
    if (moved > 0) continue;
    if (deadline.expired()) return deadline.error("did not answer");
    if (link.poll_fd() < 0) {
      ::sched_yield();
      continue;
    }
    std::vector<pollfd> polls;
    link.add_polls(event, polls);
    (void)::poll(polls.data(), polls.size(), 100);
  }
  return {};
}
Status send_all(transport::Link& link, std::span<std::byte> bytes, Deadline deadline) {
  return all(link, bytes, POLLOUT, deadline, [&](std::span<const iovec> rest) { return link.try_send(rest); });
}
Status recv_all(transport::Link& link, std::span<std::byte> bytes, Deadline deadline) {
  return all(link, bytes, POLLIN, deadline, [&](std::span<const iovec> rest) { return link.try_recv(rest); });
}

// Whether predictions can be computed from the figures.
bool is_sensible(const LinkCost& cost) {
  return cost.latency > 0 && cost.bandwidth > 0 && cost.overhead >= 0 && std::isfinite(cost.latency) &&
         std::isfinite(cost.bandwidth) && std::isfinite(cost.overhead);
}

double power_of_two_near(double value) { return std::exp2(std::round(std::log2(value))); }

// The minimum time to send `message` and receive `answer`. Tries at least `times` times, and more until `patience` is
// over.
Result<double> least(transport::Link& link, std::span<std::byte> message, std::span<std::byte> answer, int times,
                     Duration patience, Deadline deadline) {
  double best = 0;
  const auto begin = now();
  for (int i = 0; i < times || (i < 20 && now() - begin < patience); ++i) {
    const auto start = now();
    TUTTI_TRY(send_all(link, message, deadline));
    TUTTI_TRY(recv_all(link, answer, deadline));
    const double seconds = to_seconds(now() - start);
    if (i == 0 || seconds < best) best = seconds;
  }
  return best;
}

}  // namespace

Result<LinkCost> ask_network(transport::Link& link, Deadline deadline) {
  std::vector<std::byte> message(kLong);
  std::array<std::byte, kShort> answer;
  message[0] = std::byte(kEcho);
  const double round_trip = TUTTI_TRY(least(link, std::span(message).first(kShort), answer, 3, kPatience, deadline));
  message[0] = std::byte(kSwallow);
  const double swallowed =
      TUTTI_TRY(least(link, message, std::span(answer).first(1), round_trip < kFar ? 3 : 1, kLongPatience, deadline));
  TUTTI_TRY(end_asking(link, deadline));
  const double latency = power_of_two_near(round_trip / 2 * 1e6) / 1e6;
  const double flowing = std::max(swallowed - round_trip, swallowed / 16);
  return LinkCost{.latency = latency,
                  .bandwidth = power_of_two_near(double(kLong) / flowing),
                  .overhead = std::min(1e-6, latency / 4)};
}

Status end_asking(transport::Link& link, Deadline deadline) {
  std::byte end{kEnd};
  return send_all(link, {&end, 1}, deadline);
}

Status answer_network(transport::Link& link, Deadline deadline) {
  std::vector<std::byte> message(kLong);
  for (;;) {
    if (deadline.expired()) return deadline.error("the peer sends requests without end");
    TUTTI_TRY(recv_all(link, std::span(message).first(1), deadline));
    switch (Command(message[0])) {
      case kEnd:
        return {};
      case kEcho:
        TUTTI_TRY(recv_all(link, std::span(message).subspan(1, kShort - 1), deadline));
        TUTTI_TRY(send_all(link, std::span(message).first(kShort), deadline));
        break;
      case kSwallow:
        TUTTI_TRY(recv_all(link, std::span(message).subspan(1), deadline));
        TUTTI_TRY(send_all(link, std::span(message).first(1), deadline));
        break;
      default:
        return Error{.code = Code::kMismatch,
                     .detail = "sent an invalid request of the network measurement",
                     .hint = "the two ranks run different programs"};
    }
  }
}

std::string to_words(const LinkCost& cost) {
  char words[128];
  std::snprintf(words, sizeof words, "%a %a %a", cost.latency, cost.bandwidth, cost.overhead);
  return words;
}

Result<LinkCost> from_words(const std::string& words) {
  LinkCost cost;
  int read = 0;
  const int figures =
      std::sscanf(words.c_str(), "%la %la %la%n", &cost.latency, &cost.bandwidth, &cost.overhead, &read);
  if (figures != 3 || std::size_t(read) != words.size() || !is_sensible(cost))
    return Error{.code = Code::kMismatch, .detail = "rank 0 sent \"" + words + "\" as the measurement of the network"};
  return cost;
}

std::string network_text(const LinkCost& cost) {
  return seconds_text(cost.latency) + ", " + bytes_text(std::uint64_t(cost.bandwidth)) + "/s";
}

Result<LinkCost> parse_network(const std::string& text) {
  const std::size_t comma = text.find(',');
  const double latency = parse_seconds(text.substr(0, comma)).value_or(0);
  const double bandwidth = comma == std::string::npos ? 0 : parse_double(text.substr(comma + 1)).value_or(0);
  const LinkCost cost{.latency = latency, .bandwidth = bandwidth * 1e9, .overhead = std::min(1e-6, latency / 4)};
  if (!is_sensible(cost))
    return Error{.code = Code::kUsage,
                 .detail = "TUTTI_NETWORK is \"" + text +
                           "\", expected a latency and a bandwidth in 1e9 bytes a second, such as 10us,12.5"};
  return cost;
}

}  // namespace tutti::comm
