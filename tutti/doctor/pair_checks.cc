#include "tutti/doctor/pair_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr double kSlowShare = 0.5;  // of the median of all pairs
constexpr double kMuchLost = 0.2;   // of echoes, from where on heartbeats and TCP suffer
constexpr double kLateMost = 0.2;   // seconds one way
constexpr double kClocksApart = 1;  // seconds
constexpr const char* kFirewall =
    "let the hosts of a job talk on all ports to one another: ufw allow from SUBNET, a security group that allows "
    "itself, a Kubernetes NetworkPolicy";

std::string rate_text(double bytes_per_second) { return bytes_text(std::uint64_t(bytes_per_second)) + "/s"; }

template <class Add>
void judge_speed(const PairMeasure& m, double usual, const Add& add) {
  if (!m.bulk_trouble.empty())
    return add(
        Grade::kFail, "small messages pass, large ones do not: " + m.bulk_trouble,
        "a link between them has a smaller packet size (MTU): compare `ip link` on both, and see whether ping -M "
        "do -s 1472 passes");
  const std::string speed =
      fmt::format("{} one way, {} there, {} back", seconds_text(m.latency), rate_text(m.there), rate_text(m.back));
  const double least = std::min(m.there, m.back);
  if (least < kSlowShare * usual)
    return add(Grade::kWarn, speed + fmt::format(": {:.0f} % of what the median pair has", 100 * least / usual),
               "look at the cable, the negotiated speed (ethtool) and the route between these two");
  if (m.latency > kLateMost) return add(Grade::kWarn, speed, "a job between hosts so far apart waits most of its time");
  add(Grade::kOk, speed, "");
}

}  // namespace

// The circle method: the last node stays, the others go round by one place each turn. An odd number gets a node that is
// not there, whose partner rests.
std::vector<std::vector<std::pair<int, int>>> turns_of_pairs(int nodes) {
  const int even = nodes + nodes % 2;
  std::vector<std::vector<std::pair<int, int>>> turns;
  for (int turn = 0; turn + 1 < even; ++turn) {
    auto& pairs = turns.emplace_back();
    for (int i = 0; i < even / 2; ++i) {
      const int a = i == 0 ? even - 1 : (turn + i) % (even - 1), b = (turn + even - 1 - i) % (even - 1);
      if (std::max(a, b) < nodes) pairs.emplace_back(std::min(a, b), std::max(a, b));
    }
  }
  return turns;
}

std::vector<Finding> check_pairs(const std::vector<PairMeasure>& measures, const std::map<int, std::string>& hosts) {
  std::vector<double> rates;
  for (const PairMeasure& m : measures)
    if (m.there > 0 && m.back > 0) rates.push_back(std::min(m.there, m.back));
  const double usual = rates.size() > 2 ? median(rates) : 0;  // of two nobody knows which is the slow one
  std::vector<Finding> findings;
  for (const PairMeasure& m : measures) {
    const std::string& from = hosts.at(m.from);
    const std::string& to = hosts.at(m.to);
    const std::string pair = from + " - " + to;
    const auto add = [&](Grade grade, std::string fact, std::string fix = {}) {
      findings.push_back({grade, pair, std::move(fact), std::move(fix)});
    };
    if (!m.trouble.empty()) add(Grade::kFail, from + " cannot reach " + to + ": " + m.trouble, kFirewall);
    if (!m.back_trouble.empty()) add(Grade::kFail, to + " cannot reach " + from + ": " + m.back_trouble, kFirewall);
    if (!m.trouble.empty()) continue;
    judge_speed(m, usual, add);
    if (m.datagrams_lost >= 1)
      add(Grade::kFail, "TCP passes, but no UDP datagram came back: nodes watch one another by UDP",
          "let UDP between the hosts of a job through the firewall");
    else if (m.datagrams_lost >= kMuchLost)
      add(Grade::kWarn, fmt::format("{:.0f} % of the UDP datagrams were lost", 100 * m.datagrams_lost),
          "the network drops packets: look at the cable, the switch and the error counters (ip -s link)");
    if (std::abs(m.clock_offset) - m.clock_error > kClocksApart)
      add(Grade::kWarn,
          fmt::format("the clock of {} is {} {} that of {}", to, seconds_text(std::abs(m.clock_offset)),
                      m.clock_offset > 0 ? "ahead of" : "behind", from),
          "run an NTP client on both; Tutti compares no clocks of two hosts, but the times in logs will not match");
  }
  return findings;
}

}  // namespace tutti
