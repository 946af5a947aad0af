#pragma once
// The worker processes of one node in one attempt: started together, their output read, reaped, and stopped step by
// step.
//
// Threads: one, the agent's.
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/env.h"
#include "tutti/launch/agent/agent.h"
#include "tutti/launch/agent/events.h"
#include "tutti/launch/membership/rendezvous.h"
#include "tutti/launch/output/console.h"
#include "tutti/launch/output/output.h"
#include "tutti/launch/process.h"
#include "tutti/launch/reports/report.h"
#include "tutti/trace/progress/reader.h"

namespace tutti::launch {

// One rank as its agent sees it: the process, how it ended, where its output goes.
class Worker {
 public:
  // `page`: its progress page; an empty descriptor if there is none.
  Worker(int rank, ChildProcess process, WorkerOutput output, std::string error_file, Fd page);

  int rank() const { return end_.rank; }
  pid_t pid() const { return end_.pid; }
  // Readable as soon as the process has ended. No other process gets its number until it is reaped.
  int pidfd() const { return process_.pidfd.get(); }
  bool alive() const { return alive_; }
  Clock::time_point started() const { return process_.started; }

  const WorkerEnd& end() const { return end_; }
  const std::deque<std::string>& last_lines() const { return output_.tail().lines(); }
  // Traceback::message() of a Python program that an exception ended; empty: none.
  std::string traceback() const;
  const std::string& log_folder() const { return output_.folder(); }  // empty: none
  const std::string& error_file() const { return error_file_; }       // TORCHELASTIC_ERROR_FILE; may be empty

  // What the rank is doing, or did before its end.
  trace::ProgressReader progress() const { return trace::ProgressReader(page_.get()); }

  // wait4() has reaped it. `most_resident`: its peak memory in bytes. Reads the rest of its output.
  void ended(Exit exit, std::uint64_t most_resident);
  // The kernel does not let the process go: nothing waits for it any longer.
  void give_up() { alive_ = false, given_up_ = true; }
  bool given_up() const { return given_up_; }

  // Sends a signal to the process alone as soon as it has a handler for it, or ignores it: at once, or in a later
  // send_pending(). By default SIGUSR1 and SIGUSR2 end a process, and a rank installs its handlers seconds after its
  // start.
  void send_when_handled(int signal);
  void send_pending();
  bool has_pending() const { return alive_ && !pending_.empty(); }
  // To its process group: the process and its helpers. Nothing if it has ended.
  void signal_group(int signal) const;
  // The same as signal_group(), to stop the rank; the report mentions it.
  void stop_group(int signal);
  // What the report says about a rank that is stopped because of another one.
  void mark_stopped();
  void mark_asked() { end_.stopped = true; }
  void mark_killed() { end_.needed_kill = true; }

  // Reads its output as fast as the consoles take it.
  void listen(PollSet& events);
  // Reads what it wrote before its end: at most what its pipes hold, because a helper may still be writing.
  void drain();
  void close_output();

 private:
  void read(WorkerOutput::Stream stream);
  Fd& pipe(WorkerOutput::Stream stream) { return stream == WorkerOutput::kOutput ? process_.output : process_.errors; }

  WorkerEnd end_;
  ChildProcess process_;
  WorkerOutput output_;
  std::string error_file_;
  Fd page_;
  bool alive_ = true, given_up_ = false;
  std::vector<int> pending_;  // signals that the process has no handler for yet
};

class Workers {
 public:
  // Starts the ranks of this node; they write their flight records to `flight_folder`. On error those that are running
  // stay in `this`.
  Status start(const AgentSpec& spec, const Round& round, const std::string& flight_folder,
               const Environment& environment, Consoles& consoles);

  auto begin() { return workers_.begin(); }
  auto end() { return workers_.end(); }
  bool any_alive() const { return alive() > 0; }
  int alive() const;
  std::vector<WorkerEnd> ends() const;

  void listen(PollSet& events);
  // The workers that ended since the last call, the likelier cause first. Also reaps orphans that this subreaper got.
  std::vector<Worker*> reap();

  // To every process, without its helpers, as soon as it has a handler (Worker::send_when_handled()). Returns the ranks
  // that have none yet.
  std::vector<int> send_when_handled(int signal);
  void send_pending();
  bool have_pending() const;
  // Asks all ranks to save and leave, in their progress pages: this also reaches a rank without a signal handler yet.
  void request_stop(int signal);
  void stop_groups(int signal);
  void continue_groups();  // a stopped process takes no signal but SIGKILL

 private:
  Status start_one(const AgentSpec& spec, const Round& round, int local_rank, const std::string& flight_folder,
                   const std::string& interface, Environment environment, Consoles& consoles);

  std::vector<Worker> workers_;
};

// Stops the workers of a node step by step:
//
//   running    until the first failure, a signal, a fault elsewhere or the time limit;
//   told       the cause is in the store; ranks that read it there may print it and leave by themselves;
//   asked      every live worker's process group has SIGTERM, or the user's signal; the grace period runs;
//   killed     the grace period is over, or the user pressed Ctrl-C again: SIGKILL.
class Stopping {
 public:
  enum class Phase { kRunning, kTold, kAsked, kKilled };

  explicit Stopping(Workers& workers) : workers_(workers) {}

  bool running() const { return phase_ == Phase::kRunning; }
  // The time from SIGTERM to SIGKILL; valid once !running().
  Duration grace() const { return grace_; }

  // Because of a failure: from running to told. Does nothing in any other phase.
  void begin(Duration grace);
  // Because of the user, so that ranks can save: from running to asked.
  void pass_on(int signal, Duration grace);
  // From any phase.
  void kill();

  void listen(PollSet& events) const;
  // Takes the next step if its time has come.
  void on_time();

 private:
  void ask(int signal);

  Workers& workers_;
  Phase phase_ = Phase::kRunning;
  std::optional<Deadline> ends_;
  Duration grace_{};
};

}  // namespace tutti::launch
