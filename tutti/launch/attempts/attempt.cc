#include "tutti/launch/attempts/attempt.h"

#include <algorithm>
#include <utility>

#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/launch/output/error_files.h"
#include "tutti/launch/process.h"
#include "tutti/launch/reports/out_of_memory.h"
#include "tutti/launch/reports/report.h"
#include "tutti/launch/reports/shared_report.h"

namespace tutti {
namespace {

constexpr auto kNeighboursLimit = std::chrono::seconds(2);  // to say how they are doing
constexpr auto kReportLimit = std::chrono::seconds(5);      // beyond the grace, for another node to tell its report
constexpr auto kPatienceWithOthers = std::chrono::seconds(3);
constexpr auto kLastLook = std::chrono::milliseconds(300);
constexpr double kSilence = 5;                             // seconds; they say it once in one
constexpr auto kCoreDumpLimit = std::chrono::seconds(60);  // for a rank that dies of a signal to be dead

}  // namespace

Attempt::Attempt(const AgentSpec& spec, Round round, Consoles& consoles)
    : spec_(spec),
      round_(std::move(round)),
      consoles_(consoles),
      flight_folder_(!spec.flight_folder.empty()
                         ? spec.flight_folder
                         : attempt_folder(spec.output.log_dir, spec.job, round_.number) + "/flight"),
      lookout_(spec.watch,
               round_.layout.nodes() == 1 ? "no rank"
                                          : "no rank of node " + std::to_string(round_.node) + " (" + spec.host + ")",
               flight_folder_, [&consoles](const std::string& text) { consoles.say(text); }),
      memory_kills_before_(out_of_memory_kills()) {}

Status Attempt::start(const Environment& environment) {
  if (round_.layout.nodes() > 1)
    neighbours_ = std::make_unique<PeerStatus>(round_.store, spec_.credentials, round_.number, round_.node,
                                               round_.layout.nodes());
  return workers_.start(spec_, round_, flight_folder_, environment, consoles_);
}

// The rank for want of which this one failed, or the one that ended its group; -1: it may have failed by itself.
int Attempt::missed_by(const Worker& failed) {
  const RankProgress progress = failed.progress().read_pulse();
  if (progress.lost >= 0 || !progress.echoes) return progress.lost;
  for (const Worker& witness : workers_)
    if (const int lost = witness.progress().read_pulse().lost; lost >= 0) return lost;
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
    text += " without leaving, while rank " + std::to_string(failed.rank()) + " still needed it";
  } else if (missed >= 0 && !is_here(missed)) {
    text += ", for want of rank " + std::to_string(missed) + ", which is on another node";
  }
  return {.text = std::move(text),
          .code = failed.end().exit.shell_code(),
          .report = true,
          .rank = worker.rank(),
          .step = worker.progress().read_pulse().step,
          .seconds = worker.end().seconds};
}

bool Attempt::is_here(int rank) {
  return std::any_of(workers_.begin(), workers_.end(), [&](const Worker& worker) { return worker.rank() == rank; });
}

// A rank that ended well and never called init(), where another waits for it: that other would wait in vain.
std::optional<Fault> Attempt::one_never_came() {
  const auto never_came = [](const Worker& worker) {
    return !worker.alive() && worker.end().exit.ok() && !worker.progress().read_pulse().called;
  };
  const auto absent = std::find_if(workers_.begin(), workers_.end(), never_came);
  if (absent == workers_.end()) return {};
  for (const Worker& worker : workers_) {
    if (!worker.alive()) continue;
    const RankProgress waits = worker.progress().read_pulse();
    if (!waits.called || waits.joined) continue;
    const std::string text = fault_text(absent->end(), spec_.host) + " and never called tutti::init(), where rank " +
                             std::to_string(worker.rank()) + " waits for it";
    blame(*absent, text);
    return Fault{.text = text, .code = 1, .report = true, .rank = absent->rank(), .seconds = seconds()};
  }
  return {};
}

void Attempt::blame(Worker& culprit, const std::string& words) {
  culprit_ = &culprit;
  headline_ = words == fault_text(culprit.end(), spec_.host) ? std::string() : words;  // the report says more of an end
  freeze();
}

bool Attempt::is_echo(Worker& worker) {
  if (!lookout_.dying(workers_, worker)) return false;
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
          .ranks = lookout_.status(workers_)};
}

std::optional<std::string> Attempt::statuses(Clock::time_point asked) {
  std::vector<std::string> all = {encode(status())};
  if (!neighbours_) return encode_answer(all);
  neighbours_->want();
  if (!neighbours_->read_since(asked) && now() - asked < kNeighboursLimit) return {};
  for (const auto& [node, told] : neighbours_->told()) {
    NodeStatus theirs{.job = spec_.job, .node = node, .nodes = round_.layout.nodes()};
    theirs.trouble = "it has told nothing yet";
    if (auto heard = parse_node_status(told.status); heard.ok()) {
      theirs = *std::move(heard);
      theirs.age = told.age;
      if (told.age > kSilence) theirs.trouble = "it has told nothing new for " + seconds_text(told.age);
    }
    if (theirs.host.empty() && std::size_t(node) < round_.nodes.size())
      theirs.host = round_.nodes[std::size_t(node)].host;
    if (!theirs.trouble.empty() && !neighbours_->trouble().empty()) theirs.trouble += ": " + neighbours_->trouble();
    all.push_back(encode(theirs));
  }
  return encode_answer(all);
}

std::optional<Fault> Attempt::look() {
  if (neighbours_ && now() >= next_tale_) {
    next_tale_ = now() + std::chrono::seconds(1);
    neighbours_->tell(encode(status()));
  }
  if (running())
    if (auto fault = one_never_came()) return fault;
  if (const auto hang = lookout_.look(workers_)) {
    // The node whose rank is to blame shall be heard first.
    found_hang_ = hang;
    tell_hang_at_ = now() + (hang->blamed || !neighbours_ ? Duration(0) : Duration(kPatienceWithOthers));
  }
  if (!found_hang_ || !running() || now() < tell_hang_at_) return {};
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
    if (worker.given_up()) limit = std::min<Duration>(limit, kLastLook);  // SIGKILL has had its time
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
  if (culprit_) {
    Failure failure;
    failure.what = what;
    failure.culprit = culprit_->end();
    failure.node = round_.node;
    failure.host = spec_.host;
    failure.job = spec_.job;
    failure.attempt = round_.number;
    failure.headline = headline_;
    failure.message = error_file_message(culprit_->error_file());
    failure.last_lines = culprit_->last_lines();
    failure.log_folder = culprit_->log_folder();
    failure.out_of_memory = out_of_memory_kills() > memory_kills_before_;
    failure.grace = to_seconds(stopping_.grace());
    failure.flight = flight;
    lookout_.complete(failure, workers_);
    const std::string text = failure_report(failure, workers_.ends());
    consoles_.say_block(text);
    consoles_.pump();
    details_ = failure_json(failure, workers_.ends());
    if (neighbours_)  // they know the fault, should this not arrive
      (void)share_report(round_.store, spec_.credentials, round_.number, {.text = text, .json = details_});
    write_details();
    return;
  }
  if (!news || news->kind != RoundEnd::Kind::kFault || news->mine) return;
  consoles_.say(what + " failed: " + news->fault.text + (news->fault.report ? " (the report is on that node)" : ""));
  if (neighbours_ && news->fault.report) {
    consoles_.pump();
    const auto heard = read_report(round_.store, spec_.credentials, round_.number, spec_.grace + kReportLimit);
    if (heard.ok()) consoles_.say_block("[tutti] the report of that node:\n" + heard->text);
    if (heard.ok()) details_ = heard->json;
  }
  const std::vector<WorkerEnd> ends = workers_.ends();
  const bool some_failed =
      std::any_of(ends.begin(), ends.end(), [](const WorkerEnd& end) { return !end.stopped && !end.exit.ok(); });
  if (neighbours_ && (news->fault.report || some_failed)) {
    Failure failure{.culprit = {.rank = -1}, .host = spec_.host, .grace = to_seconds(stopping_.grace())};
    lookout_.complete(failure, workers_);
    consoles_.say_block(elsewhere_report(failure, ends));
  }
  if (!flight.empty()) consoles_.say(flight);
}

// For programs that look after jobs. It comes after the words for people, which a folder that hangs must not hide.
void Attempt::write_details() {
  if (spec_.output.log_dir.empty()) return;
  const std::string folder = attempt_folder(spec_.output.log_dir, spec_.job, round_.number);
  if (const Status written = write_new_file(folder + "/report.json", details_); !written.ok())
    consoles_.say(to_string(written.error()));
}

}  // namespace tutti
