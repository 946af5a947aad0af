#include "tutti/launch/attempts/attempt.h"

#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/launch/out_of_memory.h"
#include "tutti/launch/process.h"
#include "tutti/launch/report.h"

namespace tutti {
namespace {

constexpr auto kCoreDumpLimit = std::chrono::seconds(60);  // for a rank that dies of a signal to be dead

}  // namespace

Attempt::Attempt(const AgentSpec& spec, Round round, Consoles& consoles)
    : spec_(spec),
      round_(std::move(round)),
      consoles_(consoles),
      flight_folder_(!spec.flight_folder.empty()
                         ? spec.flight_folder
                         : attempt_folder(spec.output.log_dir, spec.job, round_.number) + "/flight"),
      lookout_(spec.watch, flight_folder_, [&consoles](const std::string& text) { consoles.say(text); }),
      memory_kills_before_(out_of_memory_kills()) {}

Status Attempt::start(const Environment& environment) {
  return workers_.start(spec_, round_, flight_folder_, environment, consoles_);
}

Fault Attempt::fault_of(const Worker& worker) const {
  return {.text = fault_text(worker.end(), spec_.host),
          .code = worker.end().exit.shell_code(),
          .report = true,
          .rank = worker.rank(),
          .step = worker.progress().read_pulse().step,
          .seconds = worker.end().seconds};
}

void Attempt::blame(Worker& culprit) {
  culprit_ = &culprit;
  lookout_.freeze(workers_);
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

std::optional<Fault> Attempt::look() {
  const auto hang = lookout_.look(workers_);
  if (!hang || !running()) return {};
  hang_ = hang->text;
  for (Worker& worker : workers_)
    if (worker.rank() == hang->rank) blame(worker);
  return Fault{.text = hang->text,
               .code = kExitTimeLimit,
               .report = true,
               .rank = hang->rank,
               .step = hang->step,
               .seconds = seconds()};
}

void Attempt::end_stragglers(Duration limit) {
  for (Worker& worker : workers_) worker.drain();
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

void Attempt::report(const std::string& what, const std::optional<News>& news) {
  const std::string flight = flight_line(flight_folder_, wall_start_);
  if (culprit_) {
    Failure failure;
    failure.what = what;
    failure.culprit = culprit_->end();
    failure.host = spec_.host;
    failure.job = spec_.job;
    failure.attempt = round_.number;
    failure.headline = hang_;
    failure.message = error_file_message(culprit_->error_file());
    failure.last_lines = culprit_->last_lines();
    failure.log_file = culprit_->log_file();
    failure.out_of_memory = out_of_memory_kills() > memory_kills_before_;
    failure.grace = to_seconds(stopping_.grace());
    failure.flight = flight;
    lookout_.complete(failure, workers_);
    write_json(failure);
    return consoles_.errors().write_raw(failure_report(failure, workers_.ends()) + "\n");
  }
  if (!news || news->kind != News::Kind::kFault || news->mine) return;
  consoles_.say(what + " failed: " + news->fault.text + (news->fault.report ? " (the report is on that node)" : ""));
  if (!flight.empty()) consoles_.say(flight);
}

// For programs that look after jobs. One that cannot be written must not hide the failure.
void Attempt::write_json(const Failure& failure) {
  const std::string text = failure_json(failure, workers_.ends());
  const auto write = [&](const std::string& path) {
    if (const Status status = write_file(path, text); !status.ok()) consoles_.say(to_string(status.error()));
  };
  if (!spec_.output.log_dir.empty())
    write(attempt_folder(spec_.output.log_dir, spec_.job, round_.number) + "/report.json");
  if (!spec_.report_file.empty()) write(spec_.report_file);
}

}  // namespace tutti
