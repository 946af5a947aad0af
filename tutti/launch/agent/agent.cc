// One thread, one poll loop, one function for each kind of event: a worker writes (Worker), a worker ends, the user
// sends a signal, another node reports a fault, the supervisor dies, a console takes bytes again, a time limit passes.
//
// The agent outlives attempts: it joins the other nodes, starts the workers of the round, and when they are gone the
// end of the round says whether all nodes join again. The agent keeps its store, its consoles and its place in the job,
// so a restart costs no more than starting the workers.
//
// A worker that ends with 0, or with 75 (it has saved and wants to resume later), while others run is no failure. The
// first failure is the culprit; a rank that ends after the agent has told it to stop (Stopping) is not at fault.
#include "tutti/launch/agent/agent.h"

#include <unistd.h>

#include <csignal>
#include <memory>

#include "tutti/base/text.h"
#include "tutti/base/thread.h"
#include "tutti/launch/affinity/rank_table.h"
#include "tutti/launch/agent/attempt.h"
#include "tutti/launch/agent/events.h"
#include "tutti/launch/agent/restart_policy.h"
#include "tutti/launch/environment.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/membership/rendezvous.h"
#include "tutti/launch/monitor/status_server.h"
#include "tutti/launch/output/error_files.h"
#include "tutti/launch/output/run_folder.h"
#include "tutti/launch/reports/json_report.h"
#include "tutti/launch/supervisor.h"
#include "tutti/launch/tuning.h"
#include "tutti/rendezvous/schedulers.h"

namespace tutti::launch {
namespace {

constexpr const char* kTimeIsUp = "the time limit of the job has passed";
constexpr auto kKillLimit = std::chrono::seconds(5);          // what SIGKILL may take
constexpr auto kLeaveLimit = std::chrono::seconds(10);        // what other nodes may take beyond the grace
constexpr auto kConsoleLimit = std::chrono::seconds(5);       // what the last lines may wait for the console
constexpr auto kPublishTurn = std::chrono::milliseconds(20);  // how often Stopping advances while the store is told why
constexpr auto kNodesTurn = std::chrono::seconds(1);          // how often Nodes::update() is called at least
constexpr auto kHandlerTurn = std::chrono::milliseconds(200);  // how often ranks are checked for a handler

// A node that joins a running job cannot know the run's identifier: node 0 may not be the first node any more.
Result<RunFolder> claim_logs(const AgentSpec& spec, const Round& round) {
  const NodeFacts& first = round.nodes.front();
  return RunFolder::claim(spec.output.log_dir, spec.job,
                          round.number == 0 ? parse_node_info(first.about, first.ranks).run : "");
}

// "4 ranks, job J; set (your values take precedence; --no-tune sets none): OMP_NUM_THREADS=2 ...; removed 3 variables
// of another launcher (RANK, ...)". `settings`: what the workers get and the user has not set; `removed`: names from
// remove_stale().
std::string announcement(const Layout& layout, const std::string& job, const std::vector<Setting>& settings,
                         const std::vector<std::string>& removed) {
  std::string line = std::to_string(layout.here()) + (layout.here() == 1 ? " rank" : " ranks");
  if (layout.nodes() > 1) {
    line += " (" + std::to_string(layout.first_rank()) + " to " +
            std::to_string(layout.first_rank() + layout.here() - 1) + " of " + std::to_string(layout.world_size()) +
            ") on node " + std::to_string(layout.node) + " of " + std::to_string(layout.nodes());
  }
  line += ", job " + job;
  for (std::size_t i = 0; i < settings.size(); ++i)
    line += (i ? " " : "; set (your values take precedence; --no-tune sets none): ") + settings[i].name + "=" +
            settings[i].value;
  if (!removed.empty())
    line += "; removed " + std::to_string(removed.size()) + (removed.size() == 1 ? " variable" : " variables") +
            " of another launcher (" + removed.front() + (removed.size() > 1 ? ", ...)" : ")");
  return line;
}

class Agent {
 public:
  Agent(const AgentSpec& spec, Rendezvous& nodes, const Fd& supervisor_gone)
      : spec_(spec), nodes_(nodes), supervisor_gone_(supervisor_gone) {}
  Result<int> run();

 private:
  Result<Round> join();
  Result<int> dismissed(const Error& error);
  Error join_failed(const Error& error);
  Status start(Round round);
  int fail_to_start(const Error& error);
  void live();
  void pause(Duration length);
  void listen(PollSet& events);
  void turn();
  void on_signals();
  void on_user_signal(int signal, pid_t sender);
  void on_workers();
  void on_failure(Worker& failed);
  void on_hang(const Fault& fault);
  void on_last_end();
  void publish_signal();
  void leave_job();
  RoundEnd publish(Fault fault);
  void on_nodes();
  void follow(const RoundEnd& news);
  void on_supervisor_gone();
  void on_time();
  void on_consoles();
  void end_job(const std::string& text, int code);
  bool starts_again() const;
  int conclude();
  int verdict();
  std::string cause(int code) const;
  void write_report(int code, const std::string& failure);
  bool waits_for_others() const;
  std::string this_node() const { return "node " + std::to_string(attempt_->round().node) + " (" + spec_.host + ")"; }

  const AgentSpec& spec_;
  Rendezvous& nodes_;
  const Fd& supervisor_gone_;
  Consoles consoles_{spec_.output.log_dir, spec_.output.json, spec_.host};
  std::optional<Signals> signals_;
  std::unique_ptr<Attempt> attempt_;
  std::optional<RunFolder> run_folder_;
  std::optional<StatusServer> status_;
  const Clock::time_point started_ = now();
  bool timed_out_ = false, supervisor_lost_ = false;
  EndRequests end_requests_{getppid()};
  int user_signal_ = 0;                        // the signal that ends the job
  bool stop_requested_ = false;                // by user_signal_, or by SIGUSR1: save and leave
  std::optional<Deadline> others_save_until_;  // the ranks here were told to stop and have saved
};

Result<int> Agent::run() {
  ::signal(SIGPIPE, SIG_IGN);
  signals_ = TUTTI_TRY(Signals::take());
  for (;;) {
    Result<Round> round = join();
    if (!round.ok() && nodes_.round_end()) return dismissed(round.error());
    if (!round.ok()) return join_failed(round.error());
    if (const Status started = start(*std::move(round)); !started) return fail_to_start(started.error());
    live();
    if (!starts_again()) return conclude();
    const RoundEnd news = *nodes_.round_end();
    if (news.kind == RoundEnd::Kind::kFault)
      attempt_->report("attempt " + std::to_string(attempt_->round().number), news);
    if (!news.verdict.reason.empty()) consoles_.say(news.verdict.reason);
    pause(news.verdict.pause);
    if (!starts_again()) return conclude();
  }
}

Result<Round> Agent::join() {
  if (!nodes_.one_node()) {  // joining may take long, and a signal meanwhile ends this process
    consoles_.output().drain(Deadline::after(kConsoleLimit));
    consoles_.errors().drain(Deadline::after(kConsoleLimit));
  }
  const EndAtOnce waiting(supervisor_gone_);
  return nodes_.join();
}

// A spare node that was not needed ends as the job did.
Result<int> Agent::dismissed(const Error& error) {
  consoles_.say("this node is no longer needed: " + error.detail);
  const RoundEnd& news = *nodes_.round_end();
  nodes_.leave(spec_.grace + kLeaveLimit);
  consoles_.errors().drain(Deadline::after(kConsoleLimit));
  const bool fault = news.kind == RoundEnd::Kind::kFault;
  const int code = !fault ? 0 : news.verdict.code ? news.verdict.code : news.fault.code;
  write_report(code, fault ? news.fault.text : "");
  return code;
}

Error Agent::join_failed(const Error& error) {
  write_report(exit_code_of(error.code), to_string(error));
  return error;
}

Status Agent::start(Round round) {
  const bool first = !attempt_;
  const bool other_layout = first || attempt_->round().nodes != round.nodes;
  attempt_ = std::make_unique<Attempt>(spec_, std::move(round), consoles_);
  const Layout& layout = attempt_->round().layout;
  if (first) {
    spec_.joined(attempt_->round());
    if (!spec_.report_file.empty()) remove_old_report(spec_.report_file);
    if (!spec_.output.log_dir.empty()) run_folder_ = TUTTI_TRY(claim_logs(spec_, attempt_->round()));
    if (run_folder_ && !run_folder_->moved_to().empty())
      consoles_.say("the logs of an earlier job of this name are now in " + run_folder_->moved_to());
    status_.emplace(spec_.job, attempt_->round().node,
                    [this](Clock::time_point asked) { return attempt_->statuses(asked); });
    if (!status_->trouble().empty()) consoles_.say("tutti status cannot query this job: " + status_->trouble());
  }
  Environment environment = current_environment();
  const std::vector<std::string> removed = remove_stale(environment);
  const auto variable = [&](const std::string& name) { return rendezvous::lookup(environment, name); };
  std::vector<Setting> settings;
  if (spec_.tune) settings = missing_settings(variable, cpu_features(), spec_.cores_of_a_rank, /*threads=*/true);
  if (spec_.keep_memory)
    for (Setting& setting : settings_that_keep_memory())
      if (!variable(setting.name)) settings.push_back(std::move(setting));
  for (const Setting& setting : settings) environment[setting.name] = setting.value;
  if (spec_.announce && other_layout) {
    if (first) consoles_.say(announcement(layout, spec_.job, settings, removed));
    for (const std::string& row : spec_.table(attempt_->round())) consoles_.say(row);
    consoles_.pump();  // or the ranks' standard output would come first
  }
  TUTTI_TRY(attempt_->start(environment));
  if (stop_requested_) attempt_->workers().request_stop(SIGUSR1);  // it came before these ranks started
  return {};
}

int Agent::fail_to_start(const Error& error) {
  int code = error.code == Code::kUsage ? kExitUsage : 1;
  for (const auto [signal, sender] : signals_->read())
    if (error.code == Code::kAborted && signal != SIGCHLD && asks_for_the_end(signal)) code = 128 + signal;
  consoles_.say(to_string(error));
  nodes_.report({.text = this_node() + " could not start its ranks: " + error.detail, .code = code, .final = true});
  attempt_->stopping().kill();
  if (const auto ended = end_descendants(Deadline::after(kKillLimit)); !ended.ok())
    consoles_.say(to_string(ended.error()));
  nodes_.leave(spec_.grace + kLeaveLimit);
  consoles_.errors().drain(Deadline::after(kConsoleLimit));
  write_report(code, to_string(error));
  return code;
}

// From the start of the workers until they, and everything that they have started, are gone.
void Agent::live() {
  while (attempt_->workers().any_alive() || waits_for_others()) turn();
  attempt_->end_stragglers(kKillLimit);
}

void Agent::pause(Duration length) {
  const Deadline end = Deadline::after(length);
  while (!end.expired() && starts_again()) {
    PollSet events;
    listen(events);
    events.wake_at(end.at());
    events.wait();
    consoles_.pump();
    on_time();
  }
}

void Agent::listen(PollSet& events) {
  events.watch(signals_->fd(), POLLIN, [this] { on_signals(); });
  if (!supervisor_lost_) events.watch(supervisor_gone_.get(), POLLIN, [this] { on_supervisor_gone(); });
  consoles_.listen(events);
  if (status_) status_->listen(events);
  if (spec_.time_limit && !timed_out_) events.wake_at(started_ + *spec_.time_limit);
}

void Agent::turn() {
  PollSet events;
  attempt_->workers().listen(events);  // first: read what a rank wrote before noticing its end
  for (const Worker& worker : attempt_->workers()) {
    if (worker.alive()) events.watch(worker.pidfd(), POLLIN, [this] { on_workers(); });
  }
  listen(events);
  attempt_->stopping().listen(events);
  attempt_->listen_to_monitor(events);
  if (others_save_until_) events.wake_at(others_save_until_->at());
  if (attempt_->workers().have_pending()) events.wake_after(kHandlerTurn);
  if (!nodes_.one_node() && !nodes_.round_end()) {
    events.watch(nodes_.fd(), POLLIN, [] {});  // on_nodes() follows every turn
    events.wake_after(kNodesTurn);
  }
  events.wait();
  consoles_.pump();
  attempt_->workers().send_pending();
  on_nodes();
  on_consoles();
  on_time();
  if (Worker* const late = attempt_->overdue_echo()) on_failure(*late);
  if (const auto hang = attempt_->check()) on_hang(*hang);
  if (!attempt_->workers().any_alive()) on_last_end();
}

// The ranks of this node have ended well; those of other nodes may still run.
bool Agent::waits_for_others() const { return !nodes_.round_end() && (attempt_->running() || others_save_until_); }

void Agent::on_signals() {
  bool child = false;
  for (const auto [signal, sender] : signals_->read()) {
    if (signal == SIGCHLD) {
      child = true;
    } else {
      on_user_signal(signal, sender);
    }
  }
  if (child) on_workers();
}

void Agent::on_user_signal(int signal, pid_t sender) {
  const bool requested_before = stop_requested_;
  if (signal != SIGUSR2) stop_requested_ = true;
  if (signal == SIGUSR1) attempt_->workers().request_stop(signal);
  if (signal == SIGUSR1 && !requested_before && attempt_->running())
    consoles_.say("passing SIGUSR1 on to all ranks, which are asked to save and to leave");
  if (!asks_for_the_end(signal)) {
    const std::vector<int> without_handler = attempt_->workers().send_when_handled(signal);
    const bool one = without_handler.size() == 1;
    if (!without_handler.empty())
      consoles_.say(ranks_words(without_handler) + (one ? " has" : " have") + " no handler for " + signal_name(signal) +
                    " yet: the signal follows when " + (one ? "it installs" : "they install") + " one");
    return;
  }
  if (!end_requests_.add(sender)) return;
  if (user_signal_ != 0) {
    consoles_.say("a second " + signal_name(signal) + ": killing all ranks");
    return attempt_->stopping().kill();
  }
  user_signal_ = signal;
  if (!attempt_->running()) return;
  consoles_.say("passing " + signal_name(signal) + " on to all ranks; SIGKILL in " +
                seconds_text(to_seconds(spec_.signal_grace)) + " or at a second " + signal_name(signal));
  attempt_->stopping().pass_on(signal, spec_.signal_grace);
}

void Agent::on_workers() {
  for (Worker* worker : attempt_->workers().reap()) {
    const Exit& exit = worker->end().exit;
    if (exit.ok() || exit.shell_code() == kExitSaved) continue;
    if (attempt_->running() && !attempt_->is_echo(*worker)) on_failure(*worker);
    if (user_signal_ != 0) publish_signal();
  }
}

void Agent::on_failure(Worker& failed) {
  Worker& culprit = attempt_->cause_of(failed);
  Fault fault = attempt_->fault_of(culprit, failed);
  const int others = attempt_->workers().alive();
  attempt_->freeze();
  if (const RoundEnd news = publish(fault); !news.mine) return follow(news);  // a consequence of a fault elsewhere
  attempt_->blame(culprit, fault.text);
  consoles_.say(fault.text + (others == 0 ? ""
                                          : "; stopping the other " + std::to_string(others) +
                                                (others == 1 ? " rank" : " ranks") + " of this node"));
  if (stop_requested_ && spec_.max_restarts > 0) consoles_.say("no restart: the job was asked to stop");
}

void Agent::on_hang(const Fault& fault) {
  if (const RoundEnd news = publish(fault); !news.mine) return follow(news);
  consoles_.say("stopping all ranks of this node");
}

// Ends the round here, and tells the other nodes why. The store may take seconds to answer, or never answer, and a rank
// that is stuck beside the failed one must not wait for it.
RoundEnd Agent::publish(Fault fault) {
  fault.final |= stop_requested_;  // restarted ranks would train on, past the time limit of the scheduler that asked
  attempt_->stopping().begin(spec_.grace);
  if (nodes_.one_node()) return nodes_.report(fault);
  auto published = start_async([&] { return nodes_.report(fault); });
  if (!published.ok()) return nodes_.report(fault);
  while (published->wait_for(kPublishTurn) != std::future_status::ready) attempt_->stopping().on_time();
  return published->get();
}

// Ranks that agree on a step to save at need each other until they have saved. So the other nodes learn of the signal
// only once it is clear that the ranks here do not save.
void Agent::publish_signal() {
  nodes_.report({.text = this_node() + " was asked to stop by " + signal_name(user_signal_),
                 .code = 128 + user_signal_,
                 .final = true});
}

void Agent::on_last_end() {
  if (nodes_.round_end()) return;
  if (attempt_->running()) return nodes_.finished();
  if (user_signal_ == 0) return;
  if (code_of_ends(attempt_->workers().ends(), user_signal_) != kExitSaved) return publish_signal();
  if (user_signal_ == SIGTERM && nodes_.dispensable()) return leave_job();
  if (!others_save_until_) {
    others_save_until_ = Deadline::after(spec_.signal_grace);
    nodes_.finished();
  } else if (others_save_until_->expired()) {
    publish_signal();
  }
}

// This node is being taken away, as far as it can tell; the other nodes resume from what all have saved.
void Agent::leave_job() {
  if (!others_save_until_) {
    others_save_until_ = Deadline::after(spec_.signal_grace);
    consoles_.say("all ranks of this node have saved: it leaves the job, and the other nodes continue");
  }
  if (nodes_.all_have_saved() || others_save_until_->expired()) others_save_until_.reset();
}

void Agent::on_nodes() {
  const std::optional<RoundEnd>& end = nodes_.next_event();
  if (end && attempt_->running()) follow(*end);
}

// What ended the round on another node ends it here.
void Agent::follow(const RoundEnd& news) {
  switch (news.kind) {
    case RoundEnd::Kind::kEnded:
      return;
    case RoundEnd::Kind::kFault:
      consoles_.say("stopping the ranks of this node: " + news.fault.text);
      return attempt_->stopping().begin(spec_.grace);
    case RoundEnd::Kind::kMembership:
      consoles_.say("the nodes join again: " + news.text);
      return attempt_->stopping().pass_on(SIGTERM, spec_.grace);  // nothing has failed: the ranks may save
  }
}

void Agent::on_supervisor_gone() {
  supervisor_lost_ = true;
  attempt_->stopping().kill();
}

void Agent::on_consoles() {
  const bool running = attempt_->running() && attempt_->workers().any_alive();
  if (consoles_.lost_reader(running)) end_job(this_node() + " lost the reader of its output", kExitReaderGone);
}

void Agent::on_time() {
  if (!timed_out_ && spec_.time_limit && now() - started_ >= *spec_.time_limit) {
    timed_out_ = true;
    consoles_.say("the time limit of " + seconds_text(to_seconds(*spec_.time_limit)) +
                  " has passed: stopping all ranks");
    end_job(kTimeIsUp, kExitTimeLimit);
  }
  attempt_->stopping().on_time();
}

// Ends the job for a reason that is no failure of a rank.
void Agent::end_job(const std::string& text, int code) { publish({.text = text, .code = code, .final = true}); }

bool Agent::starts_again() const {
  return nodes_.round_end() && nodes_.round_end()->again && user_signal_ == 0 && !timed_out_ && !supervisor_lost_ &&
         !consoles_.reader_gone();
}

int Agent::conclude() {
  int code = verdict();
  consoles_.output().drain(Deadline::after(kConsoleLimit));
  on_consoles();
  if (code == 0 && consoles_.reader_gone()) code = kExitReaderGone;
  if (code == 0 && consoles_.output_lost()) code = 1;
  if (supervisor_lost_) {
    code = kExitKilled;
    remove_error_files(spec_.error_files);  // otherwise the supervisor does it
  }
  nodes_.leave(spec_.grace + kLeaveLimit);
  consoles_.errors().drain(Deadline::after(kConsoleLimit));
  write_report(code, cause(code));
  return code;
}

// What ended the job, if it did not succeed.
std::string Agent::cause(int code) const {
  if (code == 0 || code == kExitSaved) return {};
  if (timed_out_) return kTimeIsUp;
  if (supervisor_lost_) return "the launcher of this node was killed";
  const std::optional<RoundEnd>& news = nodes_.round_end();
  if (news && news->kind == RoundEnd::Kind::kFault) return news->fault.text;
  if (user_signal_ != 0) return this_node() + " was asked to stop by " + signal_name(user_signal_);
  return consoles_.output_lost() ? "the output of the ranks could not be written"
                                 : "the output of the ranks was not read";
}

// Last, so that a hanging file system delays neither the messages nor the other nodes.
void Agent::write_report(int code, const std::string& failure) {
  if (spec_.report_file.empty()) return;
  JobEnd end{.job = spec_.job, .code = code, .failure = failure};
  if (attempt_) {
    end.attempt = attempt_->round().number;
    end.restarts = attempt_->round().restarts_used;
  }
  const std::optional<RoundEnd>& news = nodes_.round_end();
  const bool of_a_fault = news && news->kind == RoundEnd::Kind::kFault && failure == news->fault.text;
  if (of_a_fault) end.rank = news->fault.rank;
  if (of_a_fault && attempt_) end.details = attempt_->details();
  if (const Status written = write_report_file(spec_.report_file, job_report(end)); !written.ok()) {
    consoles_.say(to_string(written.error()));
    consoles_.errors().drain(Deadline::after(kConsoleLimit));
  }
}

// The exit code, after the report that explains it.
int Agent::verdict() {
  const std::optional<RoundEnd>& news = nodes_.round_end();
  const bool fault = news && news->kind == RoundEnd::Kind::kFault;
  attempt_->report("the job", news);
  if (fault && !news->verdict.reason.empty()) consoles_.say(news->verdict.reason);
  if (timed_out_) return kExitTimeLimit;
  if (consoles_.reader_gone()) return kExitReaderGone;
  if (fault && (user_signal_ == 0 || news->fault.rank >= 0))
    return news->verdict.code ? news->verdict.code : news->fault.code;
  const std::vector<WorkerEnd> ends = attempt_->workers().ends();
  const int code = code_of_ends(ends, user_signal_);
  if (code == kExitSaved) consoles_.say(saved_text(ends, stop_requested_));
  return code;
}

}  // namespace

Result<int> run_agent(const AgentSpec& spec, Rendezvous& nodes, const Fd& supervisor_gone) {
  return Agent(spec, nodes, supervisor_gone).run();
}

}  // namespace tutti::launch
