// What every Rendezvous must do, with a real etcd.
#include <gtest/gtest.h>

#include "tests/conformance/rendezvous_conformance.h"
#include "tests/etcd/etcd_server.h"

namespace tutti {
namespace {

class EtcdWorld final : public RendezvousWorld {
 public:
  std::unique_ptr<launch::Rendezvous> open(launch::NodesOptions options) override {
    options.backend = launch::RendezvousBackend::kEtcd;
    options.etcd = server_.endpoint();
    return launch::open_rendezvous(std::move(options)).or_throw();
  }

 private:
  const EtcdServer server_ = EtcdServer::start().or_throw();
};

INSTANTIATE_TEST_SUITE_P(Etcd, RendezvousConformance,
                         testing::Values(RendezvousMaker{"Etcd", [] { return std::make_unique<EtcdWorld>(); }}),
                         name_of_rendezvous);

}  // namespace
}  // namespace tutti
