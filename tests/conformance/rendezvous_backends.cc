// The suite of rendezvous_conformance.cc for the backends that need no server: --rdzv-backend static and elastic, and
// the one in memory. tests/etcd has etcd's.
#include "tests/conformance/rendezvous_conformance.h"
#include "tests/harness/memory_rendezvous.h"
#include "tests/harness/reserved_port.h"

namespace tutti {
namespace {

// Node 0 serves the store at a port of loopback.
class StoreWorld final : public RendezvousWorld {
 public:
  explicit StoreWorld(RendezvousBackend backend) : backend_(backend) {}
  std::unique_ptr<Rendezvous> open(NodesOptions options) override {
    options.backend = backend_;
    options.store = {.host = "127.0.0.1", .port = std::uint16_t(port_.number())};
    if (backend_ == RendezvousBackend::kElastic) options.hosts = options.node == 0;
    return open_rendezvous(std::move(options)).or_throw();
  }

 private:
  const RendezvousBackend backend_;
  const test::ReservedPort port_;
};

class MemoryWorld final : public RendezvousWorld {
 public:
  std::unique_ptr<Rendezvous> open(NodesOptions options) override {
    if (!job_)
      job_.emplace(membership::Limits{.min = options.min_nodes,
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

RendezvousMaker store(const std::string& name, RendezvousBackend backend) {
  return {name, [backend] { return std::make_unique<StoreWorld>(backend); }, backend == RendezvousBackend::kStatic};
}

INSTANTIATE_TEST_SUITE_P(Backends, RendezvousConformance,
                         testing::Values(store("Static", RendezvousBackend::kStatic),
                                         store("Elastic", RendezvousBackend::kElastic),
                                         RendezvousMaker{"Memory", [] { return std::make_unique<MemoryWorld>(); }}),
                         name_of_rendezvous);

}  // namespace
}  // namespace tutti
