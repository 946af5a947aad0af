#include <nlohmann/json.hpp>

#include "tutti/launch/reports/report.h"

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

const char* word_of(Part part) {
  switch (part) {
    case Part::kCulprit:
      return "culprit";
    case Part::kSuspended:
      return "suspended";
    case Part::kKilled:
    case Part::kStopped:
    case Part::kEnded:
      return "innocent";
    case Part::kFailedAsWell:
      return "failed as well";
  }
  return "";
}

void put_seen(Json& json, const LastSeen& seen) {
  if (seen.step >= 0) json["step"] = seen.step;
  if (!seen.doing.empty()) json["doing"] = seen.doing;
  if (!seen.stack.empty()) json["stack"] = seen.stack;
  if (!seen.message.empty()) json["message"] = seen.message;
  if (!seen.alarm.empty()) json["alarm"] = seen.alarm;
}

void put_exit(Json& json, const Exit& exit) {
  json["end"] = to_string(exit);
  if (exit.signal) {
    json["signal"] = signal_name(exit.signal);
    json["core_dumped"] = exit.dumped;
  } else {
    json["exit_code"] = exit.code;
  }
}

}  // namespace

std::string failure_json(const Failure& failure, const std::vector<WorkerEnd>& all) {
  const WorkerEnd& culprit = failure.culprit;
  Json json;
  json["job"] = failure.job;
  json["attempt"] = failure.attempt;
  json["failure"] = failure.headline.empty() ? fault_text(culprit, failure.host) : failure.headline;
  json["rank"] = culprit.rank;
  json["node"] = failure.node;
  json["host"] = failure.host;
  json["pid"] = culprit.pid;
  put_exit(json, culprit.exit);
  json["seconds"] = culprit.seconds;
  put_seen(json, failure.seen);
  if (!failure.message.empty()) json["message"] = failure.message;
  if (!failure.backtrace.empty()) json["backtrace"] = failure.backtrace;
  if (!failure.memory.empty()) json["memory"] = failure.memory;
  json["out_of_memory"] = failure.out_of_memory;
  json["last_lines"] = Json::array();
  for (const std::string& line : failure.last_lines) json["last_lines"].push_back(line);
  if (!failure.log_folder.empty()) json["log_folder"] = failure.log_folder;
  if (!failure.flight.empty()) json["flight"] = failure.flight;
  json["ranks"] = Json::array();
  for (const WorkerEnd& worker : all) {
    Json rank;
    rank["rank"] = worker.rank;
    rank["pid"] = worker.pid;
    rank["role"] = word_of(part_of(worker, failure));
    put_exit(rank, worker.exit);
    if (const auto seen = failure.others.find(worker.rank); seen != failure.others.end()) put_seen(rank, seen->second);
    json["ranks"].push_back(std::move(rank));
  }
  // What a rank wrote need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tutti
