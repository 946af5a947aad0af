// The network probe: a peer that answers, or asks, anything; words and variables with figures. Figures that are taken
// survive being written, and predictions can be made of them.
#include <cmath>

#include "tests/fuzz/served_link.h"
#include "tests/fuzz/targets.h"
#include "tutti/comm/links/network_probe.h"

namespace tutti::fuzz {
namespace {

void promise_sensible(const LinkCost& cost) {
  promise(std::isnormal(cost.latency) || cost.latency > 0, "a latency is more than nothing");
  promise(std::isfinite(cost.latency) && std::isfinite(cost.bandwidth) && std::isfinite(cost.overhead),
          "figures are finite");
  const auto again = comm::from_words(comm::to_words(cost));
  promise(again.ok() && again->latency == cost.latency && again->bandwidth == cost.bandwidth &&
              again->overhead == cost.overhead,
          "figures survive being written");
}

}  // namespace

void network(Input input) {
  switch (take(input) % 4) {
    case 0: {
      ServedLink link(input, 1 << 20);
      const Status answered = comm::answer_network(link, Deadline::after_seconds(10));
      if (!answered.ok()) promise_sentence(answered.error());
      return;
    }
    case 1: {
      ServedLink link(input, 1 << 20);
      const auto asked = comm::ask_network(link, Deadline::after_seconds(10));
      return asked.ok() ? promise_sensible(*asked) : promise_sentence(asked.error());
    }
    case 2: {
      const auto cost = comm::from_words(text_of(input));
      return cost.ok() ? promise_sensible(*cost) : promise_sentence(cost.error());
    }
    default: {
      const auto cost = comm::parse_network(text_of(input));
      return cost.ok() ? promise_sensible(*cost) : promise_sentence(cost.error());
    }
  }
}

}  // namespace tutti::fuzz
