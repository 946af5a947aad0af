#pragma once
// The nodes of a job, as one agent sees them: it meets the others for a round, hears what ends the round, tells of its
// own faults, and meets again for the next one.
//
// A *round* is one gathering of agents that agreed who takes part; its number is TUTTI_GENERATION. A *spare* is a node
// that has come while as many as may take part do; it waits in meet().
//
//   for (;;) {
//     Round round = TUTTI_TRY(nodes.meet());
//     ... start workers; poll descriptor(), call update(); until news() ...
//     if (!nodes.news()->again) break;
//   }
//   nodes.leave(patience);
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/fd.h"
#include "tutti/launch/membership/coordinator.h"
#include "tutti/launch/membership/heartbeat.h"
#include "tutti/launch/membership/key_watch.h"
#include "tutti/launch/membership/messages.h"
#include "tutti/launch/membership/nodes_options.h"
#include "tutti/launch/membership/round.h"
#include "tutti/launch/membership/store_endpoint.h"

namespace tutti {

// Threads: one, the agent's (besides those of the server, the coordinator and the heartbeats, which it has inside).
class Nodes {
 public:
  // Serves the store, if that is this node's part. Call before anything that waits, so that a port in use is told at
  // once.
  static Result<std::unique_ptr<Nodes>> open(NodesOptions options);
  ~Nodes();

  // Waits for the next round; a spare waits here until it is needed. No worker of this node may be alive. kTimeout
  // names the nodes that are missing; kMismatch what they disagree on; kAborted: interrupted, or the job has ended
  // (then news() says how).
  Result<Round> meet();

  // For a poll loop: readable when news may have come; -1 on one node. Then, and once a second, call update().
  int descriptor() const { return events_.get(); }
  void update();
  // What ended the round, once it has; stays until meet() is called again.
  const std::optional<RoundEnd>& news() const { return news_; }
  bool one_node() const { return options_.nodes == 1 && options_.backend == RendezvousBackend::kStatic; }

  // Tells every rank and agent, if nothing else ended the round before. Returns what did: with `mine` this fault.
  // Where the store cannot be reached this fault is still the best that is known, and the job does not restart.
  RoundEnd publish(const Fault& fault);
  // The ranks of this node have ended well.
  void done();
  // Whether leave() in the middle of this round would let the others go on: enough of them stay, and their store does,
  // or has a successor.
  bool dispensable();
  // The ranks of this node have saved, and it is about to leave. Ask again until it is true: then those of all other
  // nodes have ended as well, and none of them is interrupted while it saves.
  bool all_have_saved();
  // Nothing more will be asked of the store. While the round goes on: this node leaves it, and the others meet anew.
  // A coordinator whose job is over waits until the others have left as well, or are lost.
  void leave(Duration patience);

 private:
  explicit Nodes(NodesOptions options);
  bool fixed() const { return limits_of(options_).fixed(); }

  // Meeting (nodes_meeting.cc).
  Result<Round> meet_alone();
  Status reach(Deadline deadline);
  Status reach_store(Deadline deadline);  // or learns that the job is elsewhere
  Error no_store(Error error, Deadline deadline) const;
  Status wait_out_doubt(Deadline deadline);
  void step_down();
  Result<CoordinatorAddress> find_coordinator(Deadline deadline);
  Status wait_for_claim(double& next_line, Deadline deadline);
  Result<bool> still_there(const CoordinatorAddress& suspect);
  Result<bool> hears() const;
  Result<std::optional<std::string>> sign_of_life(const CoordinatorAddress& suspect) const;
  Status wait_out_cut(const CoordinatorAddress& coordinator, double& next_line, Deadline deadline);
  void tell_witness();
  Status claim(const std::optional<std::string>& before);
  Status open_pulse(const CoordinatorAddress& coordinator);
  Result<std::optional<Assignment>> wait_for_seat();
  Result<std::optional<Assignment>> take_seat(const std::string& answer, const std::string& key);
  bool still_coordinates();
  bool say_what_is_missing();
  Result<Round> sit_down(const Assignment& seat);
  JoinRequest comer() const;
  Error sent_home(Error error);
  std::string who_serves() const;
  bool interrupted() const;
  Status pause(Duration length) const;
  void watch_events();
  void drop_store();

  // A round.
  Status no_heartbeat() const;
  void end_with(RoundEnd news) { news_ = std::move(news); }
  void hear(RoundEnd news);
  void tell_ranks(const std::string& why);
  void lose_coordinator();
  void lose_touch(const std::string& how);
  std::string this_node() const { return "node " + std::to_string(round_.node) + " (" + options_.host + ")"; }

  NodesOptions options_;
  const std::string id_;  // of this process
  StoreEndpoint place_;
  std::unique_ptr<Store> store_;
  std::optional<CoordinatorAddress> coordinator_;
  std::unique_ptr<Coordinator> coordination_;  // where this agent coordinates
  std::unique_ptr<Heartbeat> pulse_;           // else its heartbeat
  std::unique_ptr<KeyWatch> watch_;            // of what ends the round
  Fd events_;                                  // epoll of the two
  int visit_ = 0;
  std::string suspect_;         // a coordinator that does not answer
  bool suspect_ended_ = false;  // as its host says
  std::future<void> told_witness_;
  Round round_;
  std::vector<Fault> past_;  // that ended earlier rounds
  std::string coordinator_words_;
  std::optional<RoundEnd> news_;
  bool done_ = false, leaving_ = false, store_lost_ = false;
};

}  // namespace tutti
