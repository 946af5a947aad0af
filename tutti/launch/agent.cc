// One thread, one poll loop. What can happen: a worker writes, a worker ends (SIGCHLD through a signalfd: a subreaper
// has to reap strangers as well, so one loop over waitpid() serves both), the user sends a signal, another node tells
// of a fault, the keeper dies, the console takes bytes again, a time limit passes.
//
// The job goes through four phases:
//   running    until the first failure, a signal, a fault elsewhere or the time limit;
//   told       the cause is in the store; ranks that read it there may say so and leave by themselves;
//   stopping   every live worker's process group has SIGTERM; the grace runs;
//   killing    the grace is over, or the user pressed Ctrl-C again: SIGKILL.
// A worker that ends with 0 while the others go on is no failure. The first failure is the culprit; whoever ends after
// the agent has told it to stop is innocent.
#include "tutti/launch/agent.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "tutti/base/cores.h"
#include "tutti/base/process_state.h"
#include "tutti/base/text.h"
#include "tutti/launch/environment.h"
#include "tutti/launch/nodes.h"
#include "tutti/launch/out_of_memory.h"
#include "tutti/launch/process.h"
#include "tutti/launch/report.h"
#include "tutti/launch/tuning.h"

namespace tutti {
namespace {

constexpr auto kTellLimit = std::chrono::milliseconds(500);  // for ranks to print the cause that they read in the store
constexpr auto kKillLimit = std::chrono::seconds(5);         // what SIGKILL may take
constexpr auto kLeaveLimit = std::chrono::seconds(10);       // what other nodes may take beyond the grace
constexpr auto kConsoleLimit = std::chrono::seconds(5);      // what the last lines may wait for the console
constexpr std::size_t kBite = 64 * 1024;                     // read from a worker at once
constexpr int kReaderGone = 128 + SIGPIPE;                   // the code of `yes | head`

struct Worker {
  WorkerEnd end;
  ChildProcess process;
  WorkerOutput output;
  std::string error_file;
  Clock::time_point started;
  bool alive = true;
};

class Agent {
 public:
  Agent(const AgentSpec& spec, Nodes* nodes, const Fd& keeper_gone)
      : spec_(spec), nodes_(nodes), keeper_gone_(keeper_gone) {}
  int run();

 private:
  enum class Phase { kRunning, kTold, kStopping, kKilling };

  Status start();
  Status start_worker(int local_rank, Environment environment);
  void announce(const std::vector<std::string>& removed, const std::vector<Setting>& settings);
  void loop();
  void wait_for_events();
  void read_output(Worker& worker, WorkerOutput::Stream stream);
  void drain_output(Worker& worker);
  void on_signals();
  void on_user_signal(int signal);
  void reap();
  void on_end(Worker& worker, Exit exit);
  void fail(Worker& culprit);
  void on_nodes();
  void stop_all(Duration grace);
  void terminate_all();
  void kill_all();
  void signal_all(int signal);
  void on_time();
  void look_at_consoles();
  int conclude();
  int verdict();
  void say(const std::string& text) { errors_.write_line("[tutti] ", text); }
  bool anybody_alive() const {
    return std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.alive; });
  }

  const AgentSpec& spec_;
  Nodes* const nodes_;
  const Fd& keeper_gone_;
  const std::string& host_ = spec_.host;
  Console output_{STDOUT_FILENO}, errors_{STDERR_FILENO};
  Fd signals_;
  std::vector<Worker> workers_;
  std::vector<char> bite_ = std::vector<char>(kBite);  // neither stack nor thread_local, which every thread would pay
  const Clock::time_point started_ = now();
  const std::chrono::system_clock::time_point wall_start_ = std::chrono::system_clock::now();
  const std::int64_t memory_kills_before_ = out_of_memory_kills();

  Phase phase_ = Phase::kRunning;
  std::optional<Deadline> phase_ends_;
  Duration grace_{};
  Worker* culprit_ = nullptr;
  std::optional<Fault> remote_fault_;
  bool timed_out_ = false, keeper_lost_ = false, reader_gone_ = false, output_lost_ = false;
  int user_signal_ = 0;
};

int Agent::run() {
  ::signal(SIGPIPE, SIG_IGN);
  if (const Status status = start(); !status) {
    say(to_string(status.error()));
    const std::string detail = "node " + std::to_string(spec_.layout.node) + " (" + host_ +
                               ") could not start its ranks: " + status.error().detail;
    if (nodes_) nodes_->publish({.text = detail, .code = kExitUsage});
    kill_all();
    (void)end_descendants(Deadline::after(kKillLimit));
    if (nodes_) nodes_->leave(spec_.grace + kLeaveLimit);
    errors_.drain(Deadline::after(kConsoleLimit));
    return status.error().code == Code::kUsage ? kExitUsage : 1;
  }
  loop();
  return conclude();
}

Status Agent::start() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) return system_error(errno, "could not make a signalfd");

  Environment environment = current_environment();
  const std::vector<std::string> removed = remove_stale(environment);
  std::vector<Setting> settings;
  if (spec_.tune) {
    for (Setting& setting : recommended_settings(cpu_features(), usable_cores(), spec_.layout.here())) {
      if (environment.emplace(setting.name, setting.value).second) settings.push_back(std::move(setting));
    }
  }
  if (spec_.announce) announce(removed, settings);
  want_descriptors(std::size_t(spec_.layout.here()) * 4 + 256);  // two pipes, two files
  workers_.reserve(std::size_t(spec_.layout.here()));
  for (int local_rank = 0; local_rank < spec_.layout.here(); ++local_rank)
    TUTTI_TRY(start_worker(local_rank, environment));
  return {};
}

void Agent::announce(const std::vector<std::string>& removed, const std::vector<Setting>& settings) {
  const Layout& layout = spec_.layout;
  std::string line = std::to_string(layout.here()) + (layout.here() == 1 ? " rank" : " ranks");
  if (layout.nodes() > 1) {
    line += " (" + std::to_string(layout.first_rank()) + " to " +
            std::to_string(layout.first_rank() + layout.here() - 1) + " of " + std::to_string(layout.world_size()) +
            ") on node " + std::to_string(layout.node) + " of " + std::to_string(layout.nodes());
  }
  line += ", job " + spec_.job;
  for (std::size_t i = 0; i < settings.size(); ++i)
    line += (i ? " " : "; set (yours win, --no-tune: none): ") + settings[i].name + "=" + settings[i].value;
  if (!removed.empty())
    line += "; removed " + std::to_string(removed.size()) + " variables of another launcher (" + removed.front() +
            (removed.size() > 1 ? ", ...)" : ")");
  say(line);
}

Status Agent::start_worker(int local_rank, Environment environment) {
  const Layout& layout = spec_.layout;
  const int rank = layout.first_rank() + local_rank;
  std::string folder, error_file;
  if (!spec_.output.log_dir.empty()) {
    folder = TUTTI_TRY(make_rank_folder(spec_.output.log_dir, spec_.job, rank));
    error_file = folder + "/error.json";
  } else if (!spec_.scratch.empty()) {
    error_file = spec_.scratch + "/rank_" + std::to_string(rank) + "_error.json";
  }
  set_place(environment, Place{.rank = rank,
                               .world_size = layout.world_size(),
                               .local_rank = local_rank,
                               .local_world_size = layout.here(),
                               .node = layout.node,
                               .nodes = layout.nodes(),
                               .master_address = spec_.master_address,
                               .master_port = spec_.master_port,
                               .job = spec_.job,
                               .store = spec_.store,
                               .flight_folder = spec_.flight_folder,
                               .error_file = error_file,
                               .secret_fd = spec_.secret_fd});
  WorkerOutput output = TUTTI_TRY(WorkerOutput::create(rank, spec_.output, folder, output_, errors_));
  ProcessSpec process{.path = spec_.program, .arguments = spec_.arguments, .environment = to_strings(environment)};
  if (rank == 0) process.input = STDIN_FILENO;
  if (spec_.secret_fd >= 0) process.inherited = {spec_.secret_fd};
  ChildProcess started = TUTTI_TRY(start_process(process));
  const WorkerEnd end{.rank = rank, .pid = started.pid};
  workers_.push_back(Worker{.end = end,
                            .process = std::move(started),
                            .output = std::move(output),
                            .error_file = error_file,
                            .started = now()});
  return {};
}

void Agent::loop() {
  while (anybody_alive() || (nodes_ && phase_ == Phase::kRunning && !nodes_->news())) {
    wait_for_events();
    on_nodes();
    look_at_consoles();
    on_time();
    if (nodes_ && phase_ == Phase::kRunning && !anybody_alive()) nodes_->done();
  }
}

void Agent::wait_for_events() {
  std::vector<pollfd> fds;
  std::vector<std::pair<Worker*, WorkerOutput::Stream>> readers;
  const auto watch = [&](int fd, short events) { fds.push_back({fd, events, 0}); };
  watch(signals_.get(), POLLIN);
  watch(keeper_lost_ ? -1 : keeper_gone_.get(), POLLIN);
  watch(nodes_ && !nodes_->news() ? nodes_->descriptor() : -1, POLLIN);
  watch(output_.wants_write() ? output_.fd() : -1, POLLOUT);
  watch(errors_.wants_write() ? errors_.fd() : -1, POLLOUT);
  const std::size_t first_reader = fds.size();
  for (Worker& worker : workers_) {
    for (const auto stream : {WorkerOutput::kOutput, WorkerOutput::kErrors}) {
      const Fd& fd = stream == WorkerOutput::kOutput ? worker.process.output : worker.process.errors;
      if (!fd || worker.output.congested(stream)) continue;
      watch(fd.get(), POLLIN);
      readers.emplace_back(&worker, stream);
    }
  }
  int timeout = phase_ends_ ? phase_ends_->poll_timeout_ms() : -1;
  if (spec_.time_limit && phase_ == Phase::kRunning) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*spec_.time_limit - (now() - started_)).count();
    const int limit = int(std::clamp<std::int64_t>(left, 0, 86400000));
    timeout = timeout < 0 ? limit : std::min(timeout, limit);
  }
  if (nodes_ && !nodes_->one_node() && !nodes_->news())
    timeout = timeout < 0 ? 1000 : std::min(timeout, 1000);  // signs of life
  if (output_.wants_write() || errors_.wants_write())
    timeout = timeout < 0 ? 500 : std::min(timeout, 500);  // to notice a stall
  if (poll(fds.data(), fds.size(), timeout) < 0 && errno != EINTR) std::abort();

  for (std::size_t i = 0; i < readers.size(); ++i) {
    if (fds[first_reader + i].revents) read_output(*readers[i].first, readers[i].second);
  }
  if (fds[0].revents) on_signals();
  if (fds[1].revents) {
    keeper_lost_ = true;
    kill_all();
  }
  output_.pump();
  errors_.pump();
}

// A bounded bite, so that a worker that writes without end does not keep the others from being heard.
void Agent::read_output(Worker& worker, WorkerOutput::Stream stream) {
  Fd& fd = stream == WorkerOutput::kOutput ? worker.process.output : worker.process.errors;
  if (!fd) return;
  const ssize_t count = read(fd.get(), bite_.data(), bite_.size());
  if (count > 0) {
    worker.output.take(stream, {bite_.data(), std::size_t(count)});
  } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
    worker.output.close(stream);
    fd.reset();
  }
}

// What a worker had written before its end: at most what its pipes hold, though a helper of it may still be writing.
void Agent::drain_output(Worker& worker) {
  for (const auto stream : {WorkerOutput::kOutput, WorkerOutput::kErrors}) {
    const Fd& fd = stream == WorkerOutput::kOutput ? worker.process.output : worker.process.errors;
    for (int bites = 0; fd && bites < 32; ++bites) {
      pollfd ready{fd.get(), POLLIN, 0};
      if (poll(&ready, 1, 0) <= 0) break;
      read_output(worker, stream);
    }
  }
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
  if (child) reap();
}

void Agent::on_user_signal(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) {  // to the ranks alone: a helper without a handler would die of it
    for (const Worker& worker : workers_) {
      if (worker.alive) kill(worker.end.pid, signal);
    }
    return;
  }
  if (user_signal_ != 0) {
    say("a second " + signal_name(signal) + ": killing all ranks");
    return kill_all();
  }
  user_signal_ = signal;
  if (phase_ != Phase::kRunning) return;
  if (nodes_ && !nodes_->one_node()) {
    nodes_->publish({.text = "node " + std::to_string(spec_.layout.node) + " (" + host_ + ") was told to stop by " +
                             signal_name(signal),
                     .code = 128 + signal});
  }
  say("passing " + signal_name(signal) + " on to all ranks; SIGKILL in " +
      seconds_text(to_seconds(spec_.signal_grace)) + " or at a second " + signal_name(signal));
  for (Worker& worker : workers_) {
    if (worker.alive) worker.end.stopped = true;
  }
  signal_all(signal);
  signal_all(SIGCONT);  // a stopped process takes no other signal
  phase_ = Phase::kStopping;
  grace_ = spec_.signal_grace;
  phase_ends_ = Deadline::after(grace_);
}

void Agent::reap() {
  std::vector<std::pair<Worker*, Exit>> ended;
  int status = 0;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    const auto worker =
        std::find_if(workers_.begin(), workers_.end(), [&](const Worker& w) { return w.alive && w.end.pid == pid; });
    if (worker != workers_.end()) ended.emplace_back(&*worker, exit_of(status));
  }
  // Of several that ended between two looks, a crash is more likely the cause, and an exit code the echo.
  std::stable_sort(ended.begin(), ended.end(),
                   [](const auto& a, const auto& b) { return (a.second.signal != 0) > (b.second.signal != 0); });
  for (auto& [worker, exit] : ended) on_end(*worker, exit);
}

void Agent::on_end(Worker& worker, Exit exit) {
  worker.alive = false;
  worker.end.exit = exit;
  worker.end.seconds = seconds_since(worker.started);
  drain_output(worker);
  if (!exit.ok() && phase_ == Phase::kRunning) fail(worker);
}

void Agent::fail(Worker& culprit) {
  culprit_ = &culprit;
  const std::string text = fault_text(culprit.end, host_);
  if (nodes_ && !nodes_->publish({.text = text, .code = culprit.end.exit.shell_code(), .report = true}).mine) {
    culprit_ = nullptr;  // an echo of what ended the job elsewhere
    return on_nodes();
  }
  const auto others =
      std::count_if(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.alive; });
  say(text + (others == 0 ? ""
                          : "; stopping the other " + std::to_string(others) + (others == 1 ? " rank" : " ranks") +
                                " of this node"));
  stop_all(spec_.grace);
}

void Agent::on_nodes() {
  if (!nodes_) return;
  nodes_->update();
  if (!nodes_->news() || nodes_->news()->kind != News::Kind::kFault || phase_ != Phase::kRunning) return;
  remote_fault_ = nodes_->news()->fault;
  say("stopping the ranks of this node: " + remote_fault_->text);
  stop_all(spec_.grace);
}

void Agent::signal_all(int signal) {
  for (const Worker& worker : workers_) {
    if (worker.alive) kill(-worker.end.pid, signal);  // not reaped yet, so the number is still this worker's
  }
}

void Agent::stop_all(Duration grace) {
  if (phase_ != Phase::kRunning) return;
  for (Worker& worker : workers_) {
    if (!worker.alive) continue;
    worker.end.stopped = true;
    worker.end.suspended = is_suspended(worker.end.pid);
  }
  grace_ = grace;
  phase_ = Phase::kTold;
  phase_ends_ = Deadline::after(kTellLimit);
}

void Agent::terminate_all() {
  phase_ = Phase::kStopping;
  phase_ends_ = Deadline::after(grace_);
  signal_all(SIGTERM);
  signal_all(SIGCONT);
}

void Agent::kill_all() {
  for (Worker& worker : workers_) {
    if (worker.alive) worker.end.needed_kill = true;
  }
  phase_ = Phase::kKilling;
  phase_ends_ = Deadline::after(kKillLimit);
  signal_all(SIGKILL);
}

void Agent::on_time() {
  if (phase_ == Phase::kRunning && spec_.time_limit && now() - started_ >= *spec_.time_limit) {
    timed_out_ = true;
    say("the time limit of " + seconds_text(to_seconds(*spec_.time_limit)) + " has passed: stopping all ranks");
    if (nodes_) nodes_->publish({.text = "the time limit of the job has passed", .code = kExitTimeLimit});
    stop_all(spec_.grace);
  }
  if (!phase_ends_ || !phase_ends_->expired()) return;
  if (phase_ == Phase::kTold) {
    terminate_all();
  } else if (phase_ == Phase::kStopping) {
    kill_all();
  } else {
    for (Worker& worker : workers_)
      worker.alive = false;  // end_descendants() says which of them the kernel does not let go
  }
}

// Nobody reads any more (`| head` has its lines): the job ends as every member of a pipeline does, unless log files
// keep what it says. A disk that is full must not end a training that goes on well, but the exit code tells of it.
void Agent::look_at_consoles() {
  for (Console* console : {&output_, &errors_}) {
    const int cause = console->take_error();
    if (cause == 0) continue;
    const std::string which = console == &output_ ? "standard output" : "standard error";
    if (cause != EPIPE) {
      output_lost_ = true;
      say("cannot write to " + which + ": " + std::strerror(cause) + "; the job goes on, what it says there is lost" +
          (spec_.output.log_dir.empty() ? "" : " here, but not in " + spec_.output.log_dir));
    } else if (!spec_.output.log_dir.empty()) {
      say("nobody reads our " + which + " any more; the job goes on, its output is in " + spec_.output.log_dir);
    } else if (!reader_gone_) {
      reader_gone_ = true;
      say("nobody reads our " + which + " any more" +
          (phase_ == Phase::kRunning && anybody_alive() ? ": ending the job (hint: with --log-dir it would go on)"
                                                        : ""));
      if (phase_ != Phase::kRunning || !anybody_alive()) continue;
      if (nodes_) {
        nodes_->publish(
            {.text = "node " + std::to_string(spec_.layout.node) + " (" + host_ + ") lost the reader of its output",
             .code = kReaderGone});
      }
      stop_all(spec_.grace);
    }
  }
}

int Agent::conclude() {
  for (Worker& worker : workers_) drain_output(worker);
  const auto survivors = end_descendants(Deadline::after(kKillLimit));
  for (Worker& worker : workers_) {
    drain_output(worker);
    worker.output.close(WorkerOutput::kOutput);
    worker.output.close(WorkerOutput::kErrors);
  }
  if (!survivors.ok()) {
    say(to_string(survivors.error()));
  } else if (!survivors->empty()) {
    std::vector<std::string> names;
    for (const Survivor& survivor : *survivors)
      names.push_back(survivor.name + " (pid " + std::to_string(survivor.pid) + ")");
    say("ended what the ranks had left running: " + join(names, ", "));
  }
  int code = verdict();
  output_.drain(Deadline::after(kConsoleLimit));
  look_at_consoles();
  if (code == 0 && (reader_gone_ || output_lost_)) code = reader_gone_ ? kReaderGone : 1;
  if (keeper_lost_) {
    code = 128 + SIGKILL;
    std::error_code ignored;  // else the keeper's part
    if (!spec_.scratch.empty()) std::filesystem::remove_all(spec_.scratch, ignored);
  }
  if (nodes_) nodes_->leave(spec_.grace + kLeaveLimit);
  errors_.drain(Deadline::after(kConsoleLimit));
  return code;
}

// The exit code as the ranks' ends have it; writes the report.
int Agent::verdict() {
  int code = 0;
  std::vector<WorkerEnd> ends;
  for (const Worker& worker : workers_) ends.push_back(worker.end);
  if (culprit_) {
    code = culprit_->end.exit.shell_code();
    const Failure failure{.culprit = culprit_->end,
                          .host = host_,
                          .message = error_file_message(culprit_->error_file),
                          .last_lines = culprit_->output.tail().lines(),
                          .log_file = culprit_->output.stderr_file(),
                          .out_of_memory = out_of_memory_kills() > memory_kills_before_,
                          .grace = to_seconds(grace_),
                          .flight = flight_line(spec_.flight_folder, wall_start_)};
    errors_.write_raw(failure_report(failure, ends) + "\n");
  } else if (remote_fault_) {
    code = remote_fault_->code;
    say("the job failed: " + remote_fault_->text + (remote_fault_->report ? " (the report is on that node)" : ""));
    if (const std::string line = flight_line(spec_.flight_folder, wall_start_); !line.empty()) say(line);
  } else if (timed_out_) {
    code = kExitTimeLimit;
  } else if (reader_gone_) {
    code = kReaderGone;
  } else {
    // After a signal of the user a rank may save and end with a code of its own; one that the signal ended counts as
    // that signal.
    for (const WorkerEnd& end : ends) {
      if (code == 0 && !end.exit.ok())
        code = end.exit.signal && user_signal_ ? 128 + user_signal_ : end.exit.shell_code();
    }
  }
  return code;
}

}  // namespace

int run_agent(const AgentSpec& spec, Nodes* nodes, const Fd& keeper_gone) {
  return Agent(spec, nodes, keeper_gone).run();
}

}  // namespace tutti
