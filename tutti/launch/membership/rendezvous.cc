// A single node, and the choice of a backend.
#include "tutti/launch/membership/rendezvous.h"

#include "tutti/launch/membership/member.h"
#include "tutti/store/server/server.h"

namespace tutti::launch {
namespace {

// Nobody to wait for, to ask, or to tell: only the store for the ranks, and the count of the rounds.
class SingleNode final : public Rendezvous {
 public:
  SingleNode(NodesOptions options, std::unique_ptr<StoreServer> server)
      : options_(std::move(options)), server_(std::move(server)) {}

  Result<Round> join() override;
  int fd() const override { return -1; }
  const std::optional<RoundEnd>& next_event() override { return end_; }
  const std::optional<RoundEnd>& round_end() const override { return end_; }
  RoundEnd report(const Fault& fault) override;
  void finished() override {
    if (!end_) end_ = RoundEnd();
  }
  bool dispensable() override { return false; }
  bool all_have_saved() override { return true; }
  void leave(Duration) override {}

 private:
  const NodesOptions options_;
  const std::unique_ptr<StoreServer> server_;
  int round_ = -1;
  std::vector<Fault> past_;  // that ended earlier rounds
  std::optional<RoundEnd> end_;
};

Result<Round> SingleNode::join() {
  if (end_ && end_->again && end_->kind == RoundEnd::Kind::kFault) past_.push_back(end_->fault);
  end_.reset();
  ++round_;
  return Round{.number = round_,
               .layout = Layout{.counts = {options_.counts.here}},
               .nodes = {NodeFacts{
                   .host = options_.host, .address = {}, .ranks = options_.counts.here, .about = options_.about}},
               .store = to_string(server_->address()),
               .unix_store = membership::unix_address_of(*server_, options_),
               .master_address = options_.master_address,
               .master_port = options_.master_port,
               .restarts_used = int(past_.size())};
}

RoundEnd SingleNode::report(const Fault& fault) {
  if (end_) return *end_;
  end_ = RoundEnd{.kind = RoundEnd::Kind::kFault, .mine = true, .text = {}, .fault = fault, .verdict = {}};
  if (options_.judge) end_->verdict = options_.judge(past_, fault);
  end_->again = end_->verdict.restart;
  (void)server_->local()->set(membership::keys::fault(round_), fault.text);  // for the ranks
  return *end_;
}

Result<std::unique_ptr<Rendezvous>> open_single_node(NodesOptions options) {
  auto server = TUTTI_TRY(StoreServer::start(options.store, options.credentials));
  return std::unique_ptr<Rendezvous>(std::make_unique<SingleNode>(std::move(options), std::move(server)));
}

}  // namespace

Result<std::unique_ptr<Rendezvous>> open_rendezvous(NodesOptions options) {
  if (options.min_nodes == 0) options.min_nodes = options.nodes;
  switch (options.backend) {
    case RendezvousBackend::kStatic:
      return options.nodes == 1 ? open_single_node(std::move(options))
                                : membership::open_static_rendezvous(std::move(options));
    case RendezvousBackend::kElastic:
      return membership::open_store_rendezvous(std::move(options));
    case RendezvousBackend::kEtcd:
      return membership::open_etcd_rendezvous(std::move(options));
  }
  return Error{.code = Code::kInternal, .detail = "no such backend"};
}

}  // namespace tutti::launch
