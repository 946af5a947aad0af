// What ranks say of themselves when they meet, why they cannot, and the texts of schedulers and URLs.
#include "tests/fuzz/targets.h"
#include "tutti/rendezvous/assembly.h"
#include "tutti/rendezvous/reach_store.h"
#include "tutti/rendezvous/schedulers.h"
#include "tutti/rendezvous/url.h"
#include "tutti/transport/address.h"

namespace tutti::fuzz {

void rendezvous(Input input) {
  const auto what = take(input) % 7;
  const std::string text = text_of(input);
  switch (what) {
    case 0: {
      const auto arrival = rendezvous::decode(text);
      if (!arrival.ok()) return promise_sentence(arrival.error());
      const auto again = rendezvous::decode(rendezvous::encode(*arrival));
      return promise(again.ok() && *again == *arrival, "an arrival survives being written");
    }
    case 1: {
      const Error trouble = rendezvous::decode_trouble(text),
                  again = rendezvous::decode_trouble(rendezvous::encode_trouble(trouble));
      return promise(again.code == trouble.code && again.detail == trouble.detail && again.hint == trouble.hint &&
                         again.waited == trouble.waited && again.limit == trouble.limit,
                     "a trouble survives being written");
    }
    case 2: {
      const auto address = transport::parse_address(text, 1);
      if (!address.ok()) return promise_sentence(address.error());
      const auto again = transport::parse_address(to_string(*address), 1);
      return promise(again.ok() && *again == *address, "an address survives being written");
    }
    case 3: {
      const auto hosts = rendezvous::expand_hostlist(text, 1000);
      if (!hosts.ok()) return promise_sentence(hosts.error());
      return promise(hosts->size() <= 1000, "a list of hosts has its limit");
    }
    case 4: {
      const auto counts = rendezvous::expand_counts(text, 1000);
      if (!counts.ok()) return promise_sentence(counts.error());
      return promise(counts->size() <= 1000, "a list of counts has its limit");
    }
    case 5: {
      const auto url = rendezvous::parse_url(text);
      if (!url.ok()) return promise_sentence(url.error());
      return promise(url->scheme != rendezvous::Scheme::kTcp || url->port != 0, "a place over TCP has a port");
    }
    default:
      (void)rendezvous::loopback_line("node1", text);
      return;
  }
}

}  // namespace tutti::fuzz
