// The suite of rendezvous_conformance.cc for the backends that need no server: --rdzv-backend static and elastic, and
// two in memory. One implements the interface itself; the other is the smallest backend with a coordinator and
// heartbeats, which shows what a new one has to provide. tests/etcd has etcd's.
#include "tests/conformance/rendezvous_conformance.h"
#include "tests/harness/memory_rendezvous.h"
#include "tests/harness/reserved_port.h"
#include "tutti/launch/membership/member.h"
#include "tutti/store/memory_store.h"

namespace tutti {
namespace {

// Node 0 serves the store at a port of loopback.
class StoreWorld final : public RendezvousWorld {
 public:
  explicit StoreWorld(launch::RendezvousBackend backend) : backend_(backend) {}
  std::unique_ptr<launch::Rendezvous> open(launch::NodesOptions options) override {
    options.backend = backend_;
    options.store = {.host = "127.0.0.1", .port = std::uint16_t(port_.number())};
    if (backend_ == launch::RendezvousBackend::kElastic) options.hosts = options.node == 0;
    return launch::open_rendezvous(std::move(options)).or_throw();
  }

 private:
  const launch::RendezvousBackend backend_;
  const test::ReservedPort port_;
};

class MemoryWorld final : public RendezvousWorld {
 public:
  std::unique_ptr<launch::Rendezvous> open(launch::NodesOptions options) override {
    if (!job_)
      job_.emplace(launch::membership::Limits{.min = options.min_nodes,
                                              .max = options.nodes,
                                              .join = options.timeout,
                                              .last_call = options.last_call,
                                              .lost_after = options.lost_after},
                   "0");
    return job_->open(std::to_string(nodes_++), std::move(options));
  }

 private:
  int nodes_ = 0;
  std::optional<test::MemoryJob> job_;
};

// A store that all nodes reach and that outlives them, as a database of the site would.
class SharedStoreNode final : public launch::membership::Member {
 public:
  SharedStoreNode(launch::NodesOptions options, Store& store) : Member(options, limits_of(options)), shared_(store) {}

 private:
  using CoordinatorAddress = launch::membership::CoordinatorAddress;

  Result<std::unique_ptr<Store>> connect(Deadline deadline) override { return shared_.clone(deadline); }
  std::string address() const override { return "memory"; }
  std::string local_address() const override { return "127.0.0.1"; }
  std::string server_name() const override { return "this process"; }
  Error explain_unreachable(Error error) const override { return error; }
  Result<Choice> choose(const std::optional<CoordinatorAddress>& other, Deadline, double&) override {
    if (!other) return Choice::kClaim;
    if (other->id != suspect_) return Choice::kFollow;
    return TUTTI_TRY(answers(*other)) ? Choice::kFollow : Choice::kClaim;
  }
  Result<std::unique_ptr<Store>> prepare_claim(launch::membership::CoordinatorOptions&,
                                               const std::optional<CoordinatorAddress>&) override {
    return store_->clone(Deadline::after(launch::membership::kCallLimit));
  }
  void on_coordinator_lost(bool) override {}
  Status settle_store(const launch::membership::Participants&, launch::Round& round) override {
    round.store = "memory";
    return {};
  }
  void inform_ranks(const std::string& why) override {
    (void)store_->set(launch::membership::keys::fault(round_.number), why);
  }

  Store& shared_;
};

class SharedStoreWorld final : public RendezvousWorld {
 public:
  std::unique_ptr<launch::Rendezvous> open(launch::NodesOptions options) override {
    return std::make_unique<SharedStoreNode>(std::move(options), store_);
  }

 private:
  MemoryStore store_;
};

RendezvousMaker store(const std::string& name, launch::RendezvousBackend backend) {
  return {name, [backend] { return std::make_unique<StoreWorld>(backend); },
          backend == launch::RendezvousBackend::kStatic};
}

INSTANTIATE_TEST_SUITE_P(Backends, RendezvousConformance,
                         testing::Values(RendezvousMaker{"SharedStore",
                                                         [] { return std::make_unique<SharedStoreWorld>(); }},
                                         store("Static", launch::RendezvousBackend::kStatic),
                                         store("Elastic", launch::RendezvousBackend::kElastic),
                                         RendezvousMaker{"Memory", [] { return std::make_unique<MemoryWorld>(); }}),
                         name_of_rendezvous);

}  // namespace
}  // namespace tutti
