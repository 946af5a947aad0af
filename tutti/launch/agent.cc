// One thread, one poll loop, one function for each kind of event: a worker writes (Worker), a worker ends, the user
// sends a signal, another node tells of a fault, the keeper dies, a console takes bytes again, a time limit passes.
//
// A worker that ends with 0 while the others go on is no failure. The first failure is the culprit; whoever ends after
// the agent has told it to stop (agent/stopping.h) is innocent.
#include "tutti/launch/agent.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>

#include "tutti/base/text.h"
#include "tutti/launch/agent/announcement.h"
#include "tutti/launch/agent/stopping.h"
#include "tutti/launch/environment.h"
#include "tutti/launch/nodes.h"
#include "tutti/launch/out_of_memory.h"
#include "tutti/launch/tuning.h"

namespace tutti {
namespace {

constexpr auto kKillLimit = std::chrono::seconds(5);     // what SIGKILL may take
constexpr auto kLeaveLimit = std::chrono::seconds(10);   // what other nodes may take beyond the grace
constexpr auto kConsoleLimit = std::chrono::seconds(5);  // what the last lines may wait for the console
constexpr auto kNodesTurn = std::chrono::seconds(1);     // signs of life between nodes

class Agent {
 public:
  Agent(const AgentSpec& spec, Nodes* nodes, const Fd& keeper_gone)
      : spec_(spec), nodes_(nodes), keeper_gone_(keeper_gone) {}
  int run();

 private:
  Status take_signals();
  Status start();
  int fail_to_start(const Error& error);
  bool goes_on();
  void turn();
  void on_signals();
  void on_user_signal(int signal);
  void on_workers();
  void on_failure(Worker& culprit);
  void on_nodes();
  void on_keeper_gone();
  void on_time();
  void on_consoles();
  int conclude();
  void end_stragglers();
  int verdict();
  int code_of_ends();
  std::string this_node() const { return "node " + std::to_string(spec_.layout.node) + " (" + spec_.host + ")"; }

  const AgentSpec& spec_;
  Nodes* const nodes_;
  const Fd& keeper_gone_;
  Consoles consoles_{spec_.output.log_dir};
  Fd signals_;
  Workers workers_;
  Stopping stopping_{workers_};
  const Clock::time_point started_ = now();
  const std::chrono::system_clock::time_point wall_start_ = std::chrono::system_clock::now();
  const std::int64_t memory_kills_before_ = out_of_memory_kills();

  Worker* culprit_ = nullptr;
  std::optional<Fault> remote_fault_;
  bool timed_out_ = false, keeper_lost_ = false;
  int user_signal_ = 0;
};

int Agent::run() {
  ::signal(SIGPIPE, SIG_IGN);
  Status started = take_signals();
  if (started) started = start();
  if (!started) return fail_to_start(started.error());
  while (goes_on()) turn();
  return conclude();
}

Status Agent::take_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) return system_error(errno, "could not make a signalfd");
  return {};
}

Status Agent::start() {
  Environment environment = current_environment();
  const std::vector<std::string> removed = remove_stale(environment);
  std::vector<Setting> settings;
  if (spec_.tune) {
    for (Setting& setting : recommended_settings(cpu_features(), spec_.cores_of_a_rank, 1)) {
      if (environment.emplace(setting.name, setting.value).second) settings.push_back(std::move(setting));
    }
  }
  if (spec_.announce) {
    consoles_.say(announcement(spec_.layout, spec_.job, settings, removed));
    for (const std::string& row : spec_.table) consoles_.say(row);
  }
  return workers_.start(spec_, environment, consoles_);
}

int Agent::fail_to_start(const Error& error) {
  consoles_.say(to_string(error));
  if (nodes_)
    nodes_->publish({.text = this_node() + " could not start its ranks: " + error.detail, .code = kExitUsage});
  stopping_.kill();
  (void)end_descendants(Deadline::after(kKillLimit));
  if (nodes_) nodes_->leave(spec_.grace + kLeaveLimit);
  consoles_.errors().drain(Deadline::after(kConsoleLimit));
  return error.code == Code::kUsage ? kExitUsage : 1;
}

bool Agent::goes_on() { return workers_.any_alive() || (nodes_ && stopping_.running() && !nodes_->news()); }

void Agent::turn() {
  PollSet events;
  workers_.listen(events);  // first, so that what a rank said before its end is heard before its end is
  for (const Worker& worker : workers_) {
    if (worker.alive()) events.watch(worker.pidfd(), POLLIN, [this] { on_workers(); });
  }
  events.watch(signals_.get(), POLLIN, [this] { on_signals(); });
  if (!keeper_lost_) events.watch(keeper_gone_.get(), POLLIN, [this] { on_keeper_gone(); });
  consoles_.listen(events);
  stopping_.listen(events);
  if (spec_.time_limit && stopping_.running()) events.wake_at(started_ + *spec_.time_limit);
  if (nodes_ && !nodes_->one_node() && !nodes_->news()) {
    events.watch(nodes_->descriptor(), POLLIN, [] {});  // on_nodes() follows every turn
    events.wake_after(kNodesTurn);
  }
  events.wait();
  consoles_.pump();
  on_nodes();
  on_consoles();
  on_time();
  if (nodes_ && stopping_.running() && !workers_.any_alive()) nodes_->done();
}

void Agent::on_signals() {
  signalfd_siginfo info{};
  bool child = false;
  while (read(signals_.get(), &info, sizeof info) == ssize_t(sizeof info)) {
    if (info.ssi_signo == SIGCHLD) {
      child = true;
    } else {
      on_user_signal(int(info.ssi_signo));
    }
  }
  if (child) on_workers();
}

void Agent::on_user_signal(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) {  // to the ranks alone: a helper without a handler would die of it
    workers_.signal_alone(signal);
    return;
  }
  if (user_signal_ != 0) {
    consoles_.say("a second " + signal_name(signal) + ": killing all ranks");
    return stopping_.kill();
  }
  user_signal_ = signal;
  if (!stopping_.running()) return;
  if (nodes_ && !nodes_->one_node())
    nodes_->publish({.text = this_node() + " was told to stop by " + signal_name(signal), .code = 128 + signal});
  consoles_.say("passing " + signal_name(signal) + " on to all ranks; SIGKILL in " +
                seconds_text(to_seconds(spec_.signal_grace)) + " or at a second " + signal_name(signal));
  stopping_.pass_on(signal, spec_.signal_grace);
}

void Agent::on_workers() {
  for (Worker* worker : workers_.reap()) {
    if (!worker->end().exit.ok() && stopping_.running()) on_failure(*worker);
  }
}

void Agent::on_failure(Worker& culprit) {
  culprit_ = &culprit;
  const std::string text = fault_text(culprit.end(), spec_.host);
  if (nodes_ && !nodes_
                     ->publish({.text = text,
                                .code = culprit.end().exit.shell_code(),
                                .report = true,
                                .rank = culprit.rank(),
                                .step = culprit.progress().read_pulse().step})
                     .mine) {
    culprit_ = nullptr;  // an echo of what ended the job elsewhere
    return on_nodes();
  }
  const int others = workers_.alive();
  consoles_.say(text + (others == 0 ? ""
                                    : "; stopping the other " + std::to_string(others) +
                                          (others == 1 ? " rank" : " ranks") + " of this node"));
  stopping_.begin(spec_.grace);
}

void Agent::on_nodes() {
  if (!nodes_) return;
  nodes_->update();
  if (!nodes_->news() || nodes_->news()->kind != News::Kind::kFault || !stopping_.running()) return;
  remote_fault_ = nodes_->news()->fault;
  consoles_.say("stopping the ranks of this node: " + remote_fault_->text);
  stopping_.begin(spec_.grace);
}

void Agent::on_keeper_gone() {
  keeper_lost_ = true;
  stopping_.kill();
}

void Agent::on_consoles() {
  const bool running = stopping_.running() && workers_.any_alive();
  if (!consoles_.lost_reader(running)) return;
  if (nodes_) nodes_->publish({.text = this_node() + " lost the reader of its output", .code = kExitReaderGone});
  stopping_.begin(spec_.grace);
}

void Agent::on_time() {
  if (stopping_.running() && spec_.time_limit && now() - started_ >= *spec_.time_limit) {
    timed_out_ = true;
    consoles_.say("the time limit of " + seconds_text(to_seconds(*spec_.time_limit)) +
                  " has passed: stopping all ranks");
    if (nodes_) nodes_->publish({.text = "the time limit of the job has passed", .code = kExitTimeLimit});
    stopping_.begin(spec_.grace);
  }
  stopping_.on_time();
}

int Agent::conclude() {
  end_stragglers();
  int code = verdict();
  consoles_.output().drain(Deadline::after(kConsoleLimit));
  on_consoles();
  if (code == 0 && consoles_.reader_gone()) code = kExitReaderGone;
  if (code == 0 && consoles_.output_lost()) code = 1;
  if (keeper_lost_) {
    code = kExitKilled;
    std::error_code ignored;  // else the keeper's part
    if (!spec_.scratch.empty()) std::filesystem::remove_all(spec_.scratch, ignored);
  }
  if (nodes_) nodes_->leave(spec_.grace + kLeaveLimit);
  consoles_.errors().drain(Deadline::after(kConsoleLimit));
  return code;
}

// What the ranks have started and left, and their last words.
void Agent::end_stragglers() {
  for (Worker& worker : workers_) worker.drain();
  const auto survivors = end_descendants(Deadline::after(kKillLimit));
  for (Worker& worker : workers_) {
    worker.drain();
    worker.close_output();
  }
  if (!survivors.ok()) return consoles_.say(to_string(survivors.error()));
  if (survivors->empty()) return;
  std::vector<std::string> names;
  for (const Survivor& survivor : *survivors)
    names.push_back(survivor.name + " (pid " + std::to_string(survivor.pid) + ")");
  consoles_.say("ended what the ranks had left running: " + join(names, ", "));
}

// The exit code as the ranks' ends have it; writes the report.
int Agent::verdict() {
  if (culprit_) {
    const Failure failure{.culprit = culprit_->end(),
                          .host = spec_.host,
                          .message = error_file_message(culprit_->error_file()),
                          .last_lines = culprit_->last_lines(),
                          .log_file = culprit_->log_file(),
                          .out_of_memory = out_of_memory_kills() > memory_kills_before_,
                          .grace = to_seconds(stopping_.grace()),
                          .flight = flight_line(spec_.flight_folder, wall_start_)};
    consoles_.errors().write_raw(failure_report(failure, workers_.ends()) + "\n");
    return culprit_->end().exit.shell_code();
  }
  if (remote_fault_) {
    consoles_.say("the job failed: " + remote_fault_->text +
                  (remote_fault_->report ? " (the report is on that node)" : ""));
    if (const std::string line = flight_line(spec_.flight_folder, wall_start_); !line.empty()) consoles_.say(line);
    return remote_fault_->code;
  }
  if (timed_out_) return kExitTimeLimit;
  if (consoles_.reader_gone()) return kExitReaderGone;
  return code_of_ends();
}

// After a signal of the user a rank may save and end with a code of its own; one that the signal ended counts as that
// signal.
int Agent::code_of_ends() {
  for (const WorkerEnd& end : workers_.ends()) {
    if (!end.exit.ok()) return end.exit.signal && user_signal_ ? 128 + user_signal_ : end.exit.shell_code();
  }
  return 0;
}

}  // namespace

int run_agent(const AgentSpec& spec, Nodes* nodes, const Fd& keeper_gone) {
  return Agent(spec, nodes, keeper_gone).run();
}

}  // namespace tutti
