// Rendezvous for --rdzv-backend static: every node has a distinct number (--node-rank), and node 0 serves the store at
// --master-addr.
#include "tutti/launch/membership/store_member.h"
#include "tutti/rendezvous/reach_store.h"

namespace tutti::launch::membership {
namespace {

class StaticRendezvous final : public StoreMember {
 public:
  explicit StaticRendezvous(NodesOptions options) : StoreMember(options, /*numbered=*/true) {}

 private:
  std::string server_name() const override { return "node 0"; }
  Result<std::optional<transport::Address>> serving_place(const transport::Address& place) const override {
    return options_.node == 0 ? std::optional(place) : std::nullopt;
  }
  // If there are two nodes 0, the coordinator reports that to both.
  bool another_serves(const transport::Address& place) const override {
    return options_.nodes > 1 && serving_at(place, Deadline::after(kCallLimit)).ok();
  }
  std::string unreachable_hint() const override;
};

std::string StaticRendezvous::unreachable_hint() const {
  if (rendezvous::is_loopback_text(options_.store))
    return options_.store.host + " is each host's own loopback address: if node 0 is on another host, give " +
           "--master-addr an address of that host; else, is node 0 started?";
  return "is node 0 started, with the same --master-addr and --master-port, and does a firewall let " + address() +
         " through?";
}

}  // namespace

Result<std::unique_ptr<Rendezvous>> open_static_rendezvous(NodesOptions options) {
  return open_serving<StaticRendezvous>(std::move(options));
}

}  // namespace tutti::launch::membership
