#include "tutti/launch/agent/attempt.h"

#include <algorithm>
#include <utility>

#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/monitor/process_info.h"
#include "tutti/launch/output/run_folder.h"
#include "tutti/launch/process.h"
#include "tutti/launch/reports/json_report.h"
#include "tutti/launch/reports/report.h"

namespace tutti::launch {
namespace {

constexpr auto kPeersLimit = std::chrono::seconds(2);           // for the other nodes to tell how their ranks are doing
constexpr auto kReportLimit = std::chrono::seconds(5);          // beyond the grace, for the report of another node
constexpr auto kPatienceWithOthers = std::chrono::seconds(3);   // the node whose rank is to blame reports first
constexpr auto kGivenUpLimit = std::chrono::milliseconds(300);  // for ranks that SIGKILL has not ended
constexpr double kSilence = 5;                                  // seconds; a node publishes its status every second
constexpr auto kCoreDumpLimit = std::chrono::seconds(60);       // for a rank that dies of a signal to end

}  // namespace

Attempt::Attempt(const AgentSpec& spec, Round round, Consoles& consoles)
    : spec_(spec),
      round_(std::move(round)),
      consoles_(consoles),
      flight_folder_(!spec.flight_folder.empty()
                         ? spec.flight_folder
                         : attempt_folder(spec.output.log_dir, spec.job, round_.number) + "/flight"),
      monitor_(spec.monitor,
               round_.layout.nodes() == 1 ? "no rank"
                                          : "no rank of node " + std::to_string(round_.node) + " (" + spec.host + ")",
               flight_folder_, [&consoles](const std::string& text) { consoles.say(text); }),
      memory_kills_before_(out_of_memory_kills()) {}

Status Attempt::start(const Environment& environment) {
  if (round_.layout.nodes() > 1)
    peers_ = TUTTI_TRY(
        PeerStatus::start(round_.store, spec_.credentials, round_.number, round_.node, round_.layout.nodes()));
  return workers_.start(spec_, round_, flight_folder_, environment, consoles_);
}

// The rank whose absence made this one fail, or that ended its group; -1: it may have failed by itself.
int Attempt::missed_by(const Worker& failed) {
  const trace::RankProgress progress = failed.progress().read_brief();
  if (progress.lost >= 0 || !progress.echoes) return progress.lost;
  for (const Worker& other : workers_)
    if (const int lost = other.progress().read_brief().lost; lost >= 0) return lost;
  return -1;
}

Worker& Attempt::cause_of(Worker& failed) {
  const int missed = missed_by(failed);
  for (Worker& worker : workers_)
    if (worker.rank() == missed && !worker.alive() && worker.end().exit.ok()) return worker;
  return failed;
}

Fault Attempt::fault_of(const Worker& worker, const Worker& failed) {
  const int missed = missed_by(failed);
  std::string text = fault_text(worker.end(), spec_.host);
  if (&worker != &failed) {
    text += " while rank " + std::to_string(failed.rank()) + " still needed it";
  } else if (missed >= 0 && !is_here(missed)) {
    text += ", because it lost rank " + std::to_string(missed) + ", which is on another node";
  }
  return {.text = std::move(text),
          .code = failed.end().exit.shell_code(),
          .report = true,
          .rank = worker.rank(),
          .step = worker.progress().read_brief().step,
          .seconds = worker.end().seconds};
}

bool Attempt::is_here(int rank) {
  return std::any_of(workers_.begin(), workers_.end(), [&](const Worker& worker) { return worker.rank() == rank; });
}

// A rank that succeeded without ever calling init() while another rank waits for it there, in vain.
std::optional<Fault> Attempt::missing_init() {
  const auto never_came = [](const Worker& worker) {
    return !worker.alive() && worker.end().exit.ok() && !worker.progress().read_brief().called;
  };
  const auto absent = std::find_if(workers_.begin(), workers_.end(), never_came);
  if (absent == workers_.end()) return {};
  for (const Worker& worker : workers_) {
    if (!worker.alive()) continue;
    const trace::RankProgress waits = worker.progress().read_brief();
    if (!waits.called || waits.joined) continue;
    const std::string text = fault_text(absent->end(), spec_.host) + " and never called tutti::init(), where rank " +
                             std::to_string(worker.rank()) + " waits for it";
    blame(*absent, text);
    return Fault{.text = text, .code = 1, .report = true, .rank = absent->rank(), .seconds = seconds()};
  }
  return {};
}

void Attempt::blame(Worker& culprit, const std::string& text) {
  culprit_ = &culprit;
  // The report describes an end in more detail.
  headline_ = text == fault_text(culprit.end(), spec_.host) ? std::string() : text;
  freeze();
}

bool Attempt::is_echo(Worker& worker) {
  if (!monitor_.dying(workers_, worker)) return false;
  if (!echo_) echo_ = &worker, echo_came_ = now();
  return true;
}

Worker* Attempt::overdue_echo() {
  const bool overdue = echo_ && running() && (now() - echo_came_ > kCoreDumpLimit || !workers_.any_alive());
  return overdue ? std::exchange(echo_, nullptr) : nullptr;
}

NodeStatus Attempt::status() {
  return {.job = spec_.job,
          .node = round_.node,
          .nodes = round_.layout.nodes(),
          .world_size = round_.layout.world_size(),
          .host = spec_.host,
          .attempt = round_.number,
          .restarts = round_.restarts_used,
          .seconds = seconds_since(spec_.began),
          .ranks = monitor_.status(workers_)};
}

std::optional<std::string> Attempt::statuses(Clock::time_point asked) {
  std::vector<std::string> all = {encode(status())};
  if (!peers_) return encode_answer(all);
  peers_->request();
  if (!peers_->read_since(asked) && now() - asked < kPeersLimit) return {};
  for (const auto& [node, peer] : peers_->peers()) {
    NodeStatus theirs{.job = spec_.job, .node = node, .nodes = round_.layout.nodes()};
    theirs.trouble = "no status yet";
    if (auto parsed = parse_node_status(peer.status); parsed.ok()) {
      theirs = *std::move(parsed);
      theirs.age = peer.age;
      if (peer.age > kSilence) theirs.trouble = "no new status for " + seconds_text(peer.age);
    }
    if (theirs.host.empty() && std::size_t(node) < round_.nodes.size())
      theirs.host = round_.nodes[std::size_t(node)].host;
    if (!theirs.trouble.empty() && !peers_->trouble().empty()) theirs.trouble += ": " + peers_->trouble();
    all.push_back(encode(theirs));
  }
  return encode_answer(all);
}

std::optional<Fault> Attempt::check() {
  if (peers_ && now() >= next_publish_) {
    next_publish_ = now() + std::chrono::seconds(1);
    peers_->publish(encode(status()));
  }
  if (running())
    if (auto fault = missing_init()) return fault;
  if (const auto hang = monitor_.check(workers_)) {
    found_hang_ = hang;
    report_hang_at_ = now() + (hang->blamed || !peers_ ? Duration(0) : Duration(kPatienceWithOthers));
  }
  if (!found_hang_ || !running() || now() < report_hang_at_) return {};
  const auto hang = std::exchange(found_hang_, std::nullopt);
  for (Worker& worker : workers_)
    if (worker.rank() == hang->rank) blame(worker, hang->text);
  return Fault{.text = hang->text,
               .code = kExitTimeLimit,
               .report = true,
               .rank = hang->rank,
               .step = hang->step,
               .seconds = seconds()};
}

void Attempt::end_stragglers(Duration limit) {
  for (Worker& worker : workers_) {
    worker.drain();
    if (worker.given_up()) limit = std::min<Duration>(limit, kGivenUpLimit);  // SIGKILL has had its time
  }
  const auto survivors = end_descendants(Deadline::after(limit));
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

void Attempt::report(const std::string& what, const std::optional<RoundEnd>& news) {
  const std::string flight = flight_line(flight_folder_, wall_start_);
  if (culprit_) return report_own_failure(what, flight);
  if (news && news->kind == RoundEnd::Kind::kFault && !news->mine) report_failure_elsewhere(what, news->fault, flight);
}

void Attempt::report_own_failure(const std::string& what, const std::string& flight) {
  Failure failure{.what = what,
                  .culprit = culprit_->end(),
                  .node = round_.node,
                  .host = spec_.host,
                  .job = spec_.job,
                  .attempt = round_.number,
                  .headline = headline_,
                  .last_lines = culprit_->last_lines(),
                  .log_folder = culprit_->log_folder(),
                  .out_of_memory = out_of_memory_kills() > memory_kills_before_,
                  .grace = to_seconds(stopping_.grace()),
                  .flight = flight};
  monitor_.complete(failure, workers_);
  const std::string text = failure_report(failure, workers_.ends());
  consoles_.say_block(text);
  consoles_.pump();
  details_ = failure_json(failure, workers_.ends());
  if (peers_)  // the other nodes know the fault, should this not arrive
    (void)share_report(round_.store, spec_.credentials, round_.number, {.text = text, .json = details_});
  write_details();
}

void Attempt::report_failure_elsewhere(const std::string& what, const Fault& fault, const std::string& flight) {
  consoles_.say(what + " failed: " + fault.text + (fault.report ? " (the report is on that node)" : ""));
  if (peers_ && fault.report) {
    consoles_.pump();
    const auto shared = read_report(round_.store, spec_.credentials, round_.number, spec_.grace + kReportLimit);
    if (shared.ok()) consoles_.say_block("[tutti] the report of that node:\n" + shared->text);
    if (shared.ok()) details_ = shared->json;
  }
  const std::vector<WorkerEnd> ends = workers_.ends();
  const bool some_failed =
      std::any_of(ends.begin(), ends.end(), [](const WorkerEnd& end) { return !end.stopped && !end.exit.ok(); });
  if (peers_ && (fault.report || some_failed)) {
    Failure failure{.culprit = {.rank = -1}, .host = spec_.host, .grace = to_seconds(stopping_.grace())};
    monitor_.complete(failure, workers_);
    consoles_.say_block(elsewhere_report(failure, ends));
  }
  if (!flight.empty()) consoles_.say(flight);
}

// For programs that supervise jobs. Written after the text for people, which a hanging folder must not hold back.
void Attempt::write_details() {
  if (spec_.output.log_dir.empty()) return;
  const std::string folder = attempt_folder(spec_.output.log_dir, spec_.job, round_.number);
  if (const Status written = write_new_file(folder + "/report.json", details_); !written.ok())
    consoles_.say(to_string(written.error()));
}

}  // namespace tutti::launch
