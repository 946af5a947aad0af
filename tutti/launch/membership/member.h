#pragma once
// A node of a job whose agents meet through a store: what all such rendezvous share. One of the agents is the
// *coordinator* (coordinator.h). To join is:
//
//   reach the store; find out who coordinates; send a join request to it; wait for an assignment
//
// and whatever fails on the way (the store, the coordinator) begins it anew, as long as the time to join lasts. While
// a node waits and the coordinator answers, only the coordinator decides when that is too long.
//
// A backend is a class derived from Member, in one file: it says where the store is, who coordinates, and where the
// ranks of a round have their store. If one of the nodes serves the store, derive it from StoreMember (store_member.h).
// Register it in rendezvous.cc.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/fd.h"
#include "tutti/launch/membership/coordinator.h"
#include "tutti/launch/membership/heartbeat.h"
#include "tutti/launch/membership/key_watch.h"
#include "tutti/launch/membership/options.h"
#include "tutti/launch/membership/protocol.h"

namespace tutti::launch::membership {

inline constexpr auto kCallLimit = std::chrono::seconds(3);  // for the store's short calls, also while workers run
inline constexpr auto kMemberTurn = std::chrono::seconds(1);
inline constexpr auto kShortPause = std::chrono::milliseconds(50);
inline constexpr double kSayEvery = 5;  // seconds, between progress lines

// Threads: one, the agent's, besides those of coordinator, heartbeat and server inside.
class Member : public Rendezvous {
 public:
  ~Member() override;
  Result<Round> join() final;
  int fd() const final { return events_.get(); }
  const std::optional<RoundEnd>& next_event() final;
  const std::optional<RoundEnd>& round_end() const final { return end_; }
  RoundEnd report(const Fault& fault) final;
  void finished() final;
  bool dispensable() final;
  bool all_have_saved() final;
  void leave(Duration patience) final;

 protected:
  // Throws if no descriptor can be had.
  Member(NodesOptions options, Limits limits);
  static Limits limits_of(const NodesOptions& options);  // without what is particular to a backend

  // ---- what a backend provides: the store ----

  virtual Result<std::unique_ptr<Store>> connect(Deadline deadline) = 0;
  virtual std::string address() const = 0;        // of the store, for messages
  virtual std::string local_address() const = 0;  // numeric, at which the other nodes reach this one; after connect()
  virtual std::string server_name() const = 0;    // for messages: "node 0"
  // connect() failed until the time to join was over: the error with what to do about it.
  virtual Error explain_unreachable(Error error) const = 0;
  // Whether this node serves the store, so that it goes with this agent.
  virtual bool serves_store() { return false; }
  // Whether another node takes over when the one that serves the store is lost.
  virtual bool has_failover() const { return false; }
  // Where the job is, if the store that was reached (null: none was) says that it has moved; then follow_redirect().
  virtual std::optional<std::string> moved_to(Store*) { return {}; }
  virtual Status follow_redirect(const std::string&) { return {}; }
  // Before the store is used for a new round: waits while this node serves it and may not decide.
  virtual Status settle_doubt(Deadline) { return {}; }

  // ---- the coordinator ----

  enum class Choice { kFollow, kClaim, kLookAgain };
  // What to do about the agent that the store names as coordinator (none: nobody, or this agent in an earlier life).
  // kLookAgain: it has waited. `next_line`: when, by `deadline`, the next progress line is due.
  virtual Result<Choice> choose(const std::optional<CoordinatorAddress>& other, Deadline deadline,
                                double& next_line) = 0;
  // Completes the options for a coordinator here; its own handle to the store. `last` coordinated before.
  virtual Result<std::unique_ptr<Store>> prepare_claim(CoordinatorOptions& options,
                                                       const std::optional<CoordinatorAddress>& last) = 0;
  // This agent's vote for that coordinator; none: there are no votes.
  virtual Voter voter_for(const CoordinatorAddress&) { return {}; }
  // Whether the heartbeat reaches the coordinator; asked before a join request is sent.
  virtual Result<bool> reaches_coordinator() { return true; }
  // Its heartbeats do not come back any more; `ended`: its host says that the agent has ended.
  virtual void on_coordinator_lost(bool ended) = 0;
  // Whether the store may name a coordinator that is dead or cut off, and a hint that says so.
  virtual bool may_name_a_lost_coordinator() const { return false; }
  virtual std::string lost_coordinator_hint() const { return {}; }

  // ---- a round ----

  // This node takes part: settles which store the ranks use, and fills in `round.store` and `round.unix_store`.
  // kAborted: the round is over.
  virtual Status settle_store(const Participants& participants, Round& round) = 0;
  // This node waits: takes in what the newest round has settled.
  virtual void learn_store() {}
  // Tells the ranks of the round why it ends, if this node is the one to do so: they would otherwise only see the
  // others end.
  virtual void inform_ranks(const std::string& why) = 0;
  // Another node ended the round.
  virtual void on_ended_elsewhere(const RoundEnd&) {}
  // The job is over, and all other nodes have left.
  virtual void on_last_to_leave() {}

  // ---- for backends ----

  bool is_coordinator() const { return own_ != nullptr; }
  bool is_cut_off() const { return own_ && own_->is_cut_off(); }
  void stop_coordinating() { own_.reset(); }
  Status open_heartbeat(const CoordinatorAddress& coordinator);
  // The coordinator is asked once more before another agent takes its part: a cut may have healed.
  Result<bool> answers(const CoordinatorAddress& suspect);
  // Waits for a heartbeat that comes back from now on, as long as one may.
  Result<bool> hears() const;
  // For what no event announces. kAborted: interrupted.
  Status pause(Duration length) const;

  const NodesOptions options_;
  const Limits limits_;
  const std::string id_;  // of this process
  std::unique_ptr<Store> store_;
  std::optional<CoordinatorAddress> coordinator_;
  std::unique_ptr<Heartbeat> heartbeat_;  // to the coordinator, unless this agent is it
  std::string suspect_;                   // the id of a coordinator that does not answer
  bool suspect_ended_ = false;            // as its host says
  Round round_;

 private:
  // Joining.
  Status reach(Deadline deadline);
  Status reach_store(Deadline deadline);  // or learns that the job is elsewhere
  Result<CoordinatorAddress> find_coordinator(Deadline deadline);
  Status claim(const std::optional<std::string>& before);
  Result<std::optional<Assignment>> wait_for_assignment();
  Result<std::optional<Assignment>> read_assignment(const std::string& answer, const std::string& key);
  bool same_coordinator();
  Status send_request();
  bool say_what_is_missing();
  Result<Round> begin_round(const Assignment& assignment);
  JoinRequest request() const;
  Error sent_home(Error error);
  void watch_events();
  void drop_store();

  // A round.
  Status check_heartbeat() const;
  void end_with(RoundEnd end) { end_ = std::move(end); }
  void ended_elsewhere(RoundEnd end);
  void look_for_end();
  void lose_coordinator();
  void lose_touch(const std::string& how);
  void lose_store(const std::string& how);
  std::string this_node() const { return "node " + std::to_string(round_.node) + " (" + options_.host + ")"; }

  std::unique_ptr<Coordinator> own_;  // if this agent coordinates
  std::unique_ptr<KeyWatch> watch_;   // of what ends the round
  const Fd events_;                   // epoll of watch and heartbeat
  int visit_ = 0;
  std::vector<Fault> past_;       // that ended earlier rounds
  std::string coordinator_text_;  // for messages
  std::optional<RoundEnd> end_;
  bool done_ = false, leaving_ = false, store_lost_ = false;
};

// The backends. NodesOptions::min_nodes is set.
Result<std::unique_ptr<Rendezvous>> open_static_rendezvous(NodesOptions options);  // kStatic, several nodes
Result<std::unique_ptr<Rendezvous>> open_store_rendezvous(NodesOptions options);   // kElastic
Result<std::unique_ptr<Rendezvous>> open_etcd_rendezvous(NodesOptions options);    // kEtcd

// The Unix socket at which the ranks of this node reach `server`; empty if there is none.
std::string unix_address_of(StoreServer& server, const NodesOptions& options);

}  // namespace tutti::launch::membership
