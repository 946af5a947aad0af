#pragma once
// The life of this node's workers in one round: started together, monitored, ended together, reported on.
//
// Threads: one, the agent's.
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "tutti/launch/agent/workers.h"
#include "tutti/launch/membership/rendezvous.h"
#include "tutti/launch/monitor/monitor.h"
#include "tutti/launch/monitor/peer_agents.h"

namespace tutti::launch {

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

  // On error the workers that are running stay so.
  Status start(const Environment& environment);

  // The worker whose end caused this failure: the failed one, or a rank that had ended with code 0 while the failed one
  // still needed it.
  Worker& cause_of(Worker& failed);
  // The fault to report for this worker's end. `failed`: the worker whose failure showed it.
  Fault fault_of(const Worker& worker, const Worker& failed);
  // Records what all ranks are doing now, for the report. Does nothing the second time.
  void freeze() { monitor_.freeze(workers_); }
  // Names the worker whose end ended the attempt, and the sentence for it. Not called: no rank of this node did.
  void blame(Worker& culprit, const std::string& text);
  // It failed because of another rank, which is known to be dying and will be reaped soon.
  bool is_echo(Worker& worker);
  // A worker that was taken for an echo, although no other failure followed for a while; null: none.
  Worker* overdue_echo();

  // The monitor's part of the loop: `events` wakes when it is time for check().
  void listen_to_monitor(PollSet& events) { monitor_.listen(events, workers_); }
  // Returns the fault that the ranks hang, with the rank to blame.
  std::optional<Fault> check();

  // How the ranks are doing, as JSON: of this node, and of all nodes; none: the other nodes are being asked.
  NodeStatus status();
  std::optional<std::string> statuses(Clock::time_point asked);

  // Once no worker is alive: ends what they started and left, and reads the rest of their output.
  void end_stragglers(Duration limit);
  // Prints how the attempt ended. `what` failed: "the job", "attempt 2"; `news`: what ended the round, if something
  // did.
  void report(const std::string& what, const std::optional<RoundEnd>& news);
  // failure_json() from the node whose rank failed, once reported; empty: no rank failed, or that node sent none.
  const std::string& details() const { return details_; }

 private:
  bool is_here(int rank);
  int missed_by(const Worker& failed);
  std::optional<Fault> missing_init();
  void report_own_failure(const std::string& what, const std::string& flight);
  void report_failure_elsewhere(const std::string& what, const Fault& fault, const std::string& flight);
  void write_details();

  const AgentSpec& spec_;
  const Round round_;
  Consoles& consoles_;
  std::string flight_folder_;
  Workers workers_;
  Stopping stopping_{workers_};
  Monitor monitor_;
  std::unique_ptr<PeerStatus> peers_;  // null on one node
  Clock::time_point next_publish_{};   // of this node's status to the other nodes
  Worker* culprit_ = nullptr;
  Worker* echo_ = nullptr;
  Clock::time_point echo_came_{};
  std::optional<Hang> found_hang_;  // not reported yet
  Clock::time_point report_hang_at_{};
  std::string details_;
  std::string headline_;  // what the culprit is blamed for, if not for its end
  const Clock::time_point started_ = now();
  const std::chrono::system_clock::time_point wall_start_ = std::chrono::system_clock::now();
  const std::int64_t memory_kills_before_;
};

}  // namespace tutti::launch
