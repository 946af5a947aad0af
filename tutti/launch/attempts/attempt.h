#pragma once
// The life of this node's workers in one round: started together, watched by the agent, ended together, reported on.
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tutti/launch/agent/stopping.h"
#include "tutti/launch/membership/rendezvous.h"
#include "tutti/launch/monitor/monitor.h"
#include "tutti/launch/monitor/peer_status.h"

namespace tutti {

class Attempt {
 public:
  // The spec and the consoles outlive this.
  Attempt(const AgentSpec& spec, Round round, Consoles& consoles);
  Attempt(const Attempt&) = delete;

  const Round& round() const { return round_; }
  Workers& workers() { return workers_; }
  Stopping& stopping() { return stopping_; }
  bool running() const { return stopping_.running(); }
  double seconds() const { return seconds_since(started_); }

  // What of the workers is running stays so on error.
  Status start(const Environment& environment);

  // Whose end this worker's failure comes from: its own, or that of a rank which had ended with code 0 while this one
  // still needed it.
  Worker& cause_of(Worker& failed);
  // The fault that this worker's end is. `failed`: whose failure showed it.
  Fault fault_of(const Worker& worker, const Worker& failed);
  // What all ranks do now is what the report will tell; nothing the second time.
  void freeze() { lookout_.freeze(workers_); }
  // Whose end it was that ended the attempt, and the words for it; none: nobody's of this node.
  void blame(Worker& culprit, const std::string& words);
  // It failed because another rank did, which is seen to be dying and will be reaped soon.
  bool is_echo(Worker& worker);
  // One that was taken for an echo, though nothing else came for a while; null: none.
  Worker* overdue_echo();

  // Looks after the workers: `events` wakes when it is time to. The fault that they hang, which blames one of them.
  void listen_to_lookout(PollSet& events) { lookout_.listen(events, workers_); }
  std::optional<Fault> look();

  // How its ranks are doing, as JSON: of this node, and what the other nodes say; none: they are being asked.
  NodeStatus status();
  std::optional<std::string> statuses(Clock::time_point asked);

  // Once no worker is alive: ends what they have started and left, and takes their last words.
  void end_stragglers(Duration limit);
  // Says how it ended. `what` failed: "the job", "attempt 2"; `news`: what ended the round, if something did.
  void report(const std::string& what, const std::optional<RoundEnd>& news);
  // failure_json() of the node whose rank failed, once that is reported; empty: none did, or it has not told.
  const std::string& details() const { return details_; }

 private:
  bool is_here(int rank);
  int missed_by(const Worker& failed);
  std::optional<Fault> one_never_came();
  void write_details();

  const AgentSpec& spec_;
  const Round round_;
  Consoles& consoles_;
  std::string flight_folder_;
  Workers workers_;
  Stopping stopping_{workers_};
  Monitor lookout_;
  std::unique_ptr<PeerStatus> neighbours_;  // null on one node
  Clock::time_point next_tale_{};           // when they hear of us
  Worker* culprit_ = nullptr;
  Worker* echo_ = nullptr;
  Clock::time_point echo_came_{};
  std::optional<Hang> found_hang_;  // and is not told yet
  Clock::time_point tell_hang_at_{};
  std::string details_;
  std::string headline_;  // what the culprit is blamed for, if not for its end
  const Clock::time_point started_ = now();
  const std::chrono::system_clock::time_point wall_start_ = std::chrono::system_clock::now();
  const std::int64_t memory_kills_before_;
};

}  // namespace tutti
