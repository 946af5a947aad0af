#include "tutti/launch/attempts/attempt.h"

#include "tutti/base/text.h"
#include "tutti/launch/out_of_memory.h"
#include "tutti/launch/process.h"
#include "tutti/launch/report.h"

namespace tutti {

Attempt::Attempt(const AgentSpec& spec, Round round, Consoles& consoles)
    : spec_(spec),
      round_(std::move(round)),
      consoles_(consoles),
      flight_folder_(!spec.flight_folder.empty()
                         ? spec.flight_folder
                         : attempt_folder(spec.output.log_dir, spec.job, round_.number) + "/flight"),
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
    const Failure failure{.what = what,
                          .culprit = culprit_->end(),
                          .host = spec_.host,
                          .message = error_file_message(culprit_->error_file()),
                          .last_lines = culprit_->last_lines(),
                          .log_file = culprit_->log_file(),
                          .out_of_memory = out_of_memory_kills() > memory_kills_before_,
                          .grace = to_seconds(stopping_.grace()),
                          .flight = flight};
    return consoles_.errors().write_raw(failure_report(failure, workers_.ends()) + "\n");
  }
  if (!news || news->kind != News::Kind::kFault || news->mine) return;
  consoles_.say(what + " failed: " + news->fault.text + (news->fault.report ? " (the report is on that node)" : ""));
  if (!flight.empty()) consoles_.say(flight);
}

}  // namespace tutti
