#pragma once
// A node of a job whose store one of the nodes serves: what --rdzv-backend static (static_rendezvous.cc) and elastic
// (store_rendezvous.cc) share. Each of them says which node serves first. The node that serves the store coordinates.
//
// In a job that can continue without one of its nodes the store has a standby, settled anew for every round. The agents
// of a round know both addresses of the store, and ask whichever serves; the ranks know one, because their round ends
// with the node that serves it. The standby says where its copy is once that is complete, and the nodes of the round
// wait for that: from the first moment of a round all of them know where to go.
//
// A node that serves the store keeps doing so, and coordinating, from round to round; unless its standby has taken
// over. Then it steps down and joins as any other node.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/launch/membership/failover.h"
#include "tutti/launch/membership/member.h"
#include "tutti/store/tcp_store.h"

namespace tutti::launch::membership {

class StoreMember : public Member {
 public:
  ~StoreMember() override { stop_coordinating(); }  // before server_, or the coordinator reports a lost store

  // Serves the store, if that is this node's part.
  Status serve();

 protected:
  // `numbered`: Limits::numbered.
  StoreMember(const NodesOptions& options, bool numbered);

  // ---- what a backend provides ----

  // Where this node serves the store that the others look for at `place`; none: another node does.
  virtual Result<std::optional<transport::Address>> serving_place(const transport::Address& place) const = 0;
  // The port at `place` is in use: whether another agent of this job may have it.
  virtual bool another_serves(const transport::Address& place) const = 0;
  // What to do if no store answers.
  virtual std::string unreachable_hint() const = 0;

  // ---- for backends ----

  std::string address() const override { return address_; }
  // Asks this server only, as long as it merely stands by: a dead host takes its time not to answer.
  Result<std::unique_ptr<TcpStore>> serving_at(const transport::Address& server, Deadline deadline) const;

 private:
  static Limits limits_for(const NodesOptions& options, bool numbered);

  // The store.
  Result<std::unique_ptr<Store>> connect(Deadline deadline) override;
  std::string local_address() const override { return local_address_; }
  Error explain_unreachable(Error error) const override;
  bool serves_store() override { return server() != nullptr; }
  bool has_failover() const override { return !pair_.standby.empty(); }
  std::optional<std::string> moved_to(Store* store) override;
  Status follow_redirect(const std::string& address) override;
  Status settle_doubt(Deadline deadline) override;

  // The coordinator.
  Result<Choice> choose(const std::optional<CoordinatorAddress>& other, Deadline deadline, double& next_line) override;
  Result<std::unique_ptr<Store>> prepare_claim(CoordinatorOptions& options,
                                               const std::optional<CoordinatorAddress>& last) override;
  Voter voter_for(const CoordinatorAddress& coordinator) override { return voter_for(coordinator.id); }
  void on_coordinator_lost(bool ended) override;

  // A round.
  Status settle_store(const Participants& participants, Round& round) override;
  void learn_store() override;
  void inform_ranks(const std::string& why) override { (void)store_->set(keys::fault(round_.number), why); }

  HeartbeatTimes times() const { return {.lost_after = options_.lost_after}; }
  Voter voter_for(const std::string& id) const;
  StoreServer* server();
  bool is_demoted(Deadline deadline);
  std::vector<transport::Address> servers() const;
  bool standby_serves() const;
  void back_to_primary();
  void redirect_from(const transport::Address& former);
  Status wait_for_claim(Deadline deadline, double& next_line);
  Result<StorePair> settle_pair(const Participants& participants, const transport::Address& primary);
  StorePair keep_copy(const Participants& participants, const transport::Address& primary);
  Result<StorePair> await_pair(const Participants& participants);
  void take(StorePair pair);

  const std::shared_ptr<Vote> vote_ = std::make_shared<Vote>();
  std::unique_ptr<StoreServer> server_;       // if this node serves the job's store
  std::unique_ptr<FailoverStandby> standby_;  // if it keeps the copy
  std::unique_ptr<Redirect> redirect_;        // if it has taken over
  std::unique_ptr<StoreServer> old_server_;   // if it began another job: redirects nodes that come later
  std::unique_ptr<Heartbeat> voter_;          // gives this node's vote to the standby
  bool primary_lost_ = false, moved_ = false;
  StorePair pair_;            // of the last round that settled one
  transport::Address place_;  // where this node looks for the store
  std::string address_, local_address_;
};

// Opens a rendezvous of a class derived from StoreMember.
template <class Backend>
Result<std::unique_ptr<Rendezvous>> open_serving(NodesOptions options) {
  return as_result([&] {
    auto rendezvous = std::make_unique<Backend>(std::move(options));
    rendezvous->serve().or_throw();
    return std::unique_ptr<Rendezvous>(std::move(rendezvous));
  });
}

}  // namespace tutti::launch::membership
