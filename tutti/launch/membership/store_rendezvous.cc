// Rendezvous for --rdzv-backend elastic: the first node that owns the endpoint's address serves the store there.
#include <algorithm>

#include "tutti/launch/membership/store_member.h"
#include "tutti/rendezvous/reach_store.h"

namespace tutti::launch::membership {
namespace {

class StoreRendezvous final : public StoreMember {
 public:
  explicit StoreRendezvous(NodesOptions options) : StoreMember(options, /*numbered=*/false) {}

 private:
  std::string server_name() const override { return "the node that serves the store"; }
  Result<std::optional<transport::Address>> serving_place(const transport::Address& place) const override;
  // Several agents of one host may each find that the endpoint is theirs. The first gets it, and the others join it
  // there; if another program has the port, the handshake fails.
  bool another_serves(const transport::Address&) const override { return !options_.hosts.value_or(false); }
  std::string unreachable_hint() const override {
    return "is " + server_name() + " started, with the same --rdzv-endpoint, and does a firewall let " + address() +
           " through?";
  }
};

Result<std::optional<transport::Address>> StoreRendezvous::serving_place(const transport::Address& place) const {
  const auto resolved = resolve(place);
  const bool ours = resolved.ok() && std::any_of(resolved->begin(), resolved->end(), [](const transport::Address& a) {
                      return transport::is_local_address(a.host);
                    });
  if (!options_.hosts.value_or(ours)) return std::optional<transport::Address>();
  const bool meant = options_.nodes == 1 || rendezvous::is_loopback_text(place);
  auto here = TUTTI_TRY(rendezvous::serving_addresses(
                            place, "--rdzv-endpoint",
                            meant ? rendezvous::Identity::OneHost::kUnknown : rendezvous::Identity::OneHost::kNo))
                  .front();
  here.port = place.port;
  return std::optional(here);
}

}  // namespace

Result<std::unique_ptr<Rendezvous>> open_store_rendezvous(NodesOptions options) {
  return open_serving<StoreRendezvous>(std::move(options));
}

}  // namespace tutti::launch::membership
