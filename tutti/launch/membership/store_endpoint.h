#pragma once
// Where the nodes meet, as one agent sees it: the store, the nodes that have it, and this node's part in that. In a job
// that may do without one of its nodes the store has a successor, settled anew for every round (succession.h).
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/launch/membership/failover.h"
#include "tutti/launch/membership/messages.h"
#include "tutti/launch/membership/nodes_options.h"
#include "tutti/launch/membership/redirect.h"
#include "tutti/store/etcd/etcd_store.h"
#include "tutti/store/server/server.h"
#include "tutti/store/tcp_store.h"

namespace tutti {

// Threads: one, the agent's.
class StoreEndpoint {
 public:
  // `options` outlives it; `id` is this agent's.
  StoreEndpoint(const NodesOptions& options, const std::string& id);
  ~StoreEndpoint();

  // Serves the store, if that is this node's part.
  Status serve();
  // The store of whoever serves it now.
  Result<std::unique_ptr<Store>> connect(Deadline deadline);
  // For words: where that is, or would be.
  const std::string& address() const { return address_; }
  // Who has its port, if it is one of this machine; empty: nobody, or it is not.
  std::string holder_here() const;
  // Numeric, of this node: at which the others reach it.
  const std::string& local_address() const { return local_address_; }

  // Where this node serves the store, else null. A successor that has taken over serves.
  StoreServer* server();
  // With etcd, where this node serves the ranks of the round; else null.
  StoreServer* ranks_server() const { return round_server_.get(); }
  // Whether the successor is the one that answers.
  bool is_taken_over() const;
  // Whether this node served the store and another one does now; then stop_serving().
  bool is_deposed(Deadline deadline);
  void stop_serving();
  // Where the job is, if the store at the place that the command line names (`store` is from connect(), or null) is
  // only a signpost to it. follow_signpost() goes there: from now on this is the meeting place.
  std::optional<std::string> signpost(Store* store) const;
  Status follow_signpost(const std::string& address);

  // Who has the store in this round, which this node takes part in; returns once that is settled, with the address for
  // the ranks. `store` is from connect(), and may be another one afterwards. kAborted: the round is over.
  Result<std::string> settle(const Participants& roster, std::unique_ptr<Store>& store);
  // Where the ranks of this node reach that store without the network: "unix:@..."; empty if it is not served here.
  std::string unix_address_of(const std::string& store);
  // As settle(), for a node that does not take part: what the newest round has settled.
  void learn(std::unique_ptr<Store>& store);
  // Whether the store has, or had, a successor; then why neither of the two may serve, as a hint.
  bool has_successor() const { return !pair_.successor.empty(); }
  std::string why_nobody_serves() const;
  // This node hears nothing of who serves the store (`ended`: whose host says that its agent has ended): it is for the
  // successor. Until back_to_primary().
  void primary_is_lost(bool ended);
  void back_to_primary();

  const std::shared_ptr<Vote>& ballot() const { return ballot_; }
  HeartbeatTimes times() const { return {.lost_after = options_.lost_after}; }
  EtcdOptions etcd_options() const;

 private:
  Result<std::string> settle_etcd(const Participants& roster, Store& store);
  StorePair keep_copy(const Participants& roster, const Address& primary);
  Result<StorePair> await_pair(const Participants& roster, Store& store);
  void take(StorePair pair, std::unique_ptr<Store>& store);
  std::vector<Address> servers() const;
  void put_up_signpost(const Address& former);
  bool another_serves(const Address& place) const;
  Result<std::unique_ptr<TcpStore>> serving_at(const Address& server, Deadline deadline) const;

  const NodesOptions& options_;
  const std::string id_;
  const std::shared_ptr<Vote> ballot_ = std::make_shared<Vote>();
  std::unique_ptr<StoreServer> server_;         // where this node serves the job's store
  std::unique_ptr<StoreServer> round_server_;   // kEtcd, node 0: the ranks' store of the round, until the next
  std::unique_ptr<FailoverStandby> successor_;  // where it keeps a copy
  std::unique_ptr<Redirect> signpost_;          // where it has taken over
  std::unique_ptr<StoreServer> old_place_;      // has the way to the new one, for others that come to the old one
  std::unique_ptr<Heartbeat> voter_;            // gives this node's voice to the successor
  bool primary_lost_ = false, moved_ = false;
  StorePair pair_;  // of the last round that settled one
  Address place_;
  std::string address_, local_address_;
};

}  // namespace tutti
