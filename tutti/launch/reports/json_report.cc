#include "tutti/launch/reports/json_report.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "tutti/base/fd.h"
#include "tutti/base/file.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/output/error_files.h"
#include "tutti/launch/reports/report.h"

namespace tutti::launch {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(FailureRole role) {
  switch (role) {
    case FailureRole::kCulprit:
      return "culprit";
    case FailureRole::kSuspended:
      return "suspended";
    case FailureRole::kKilled:
    case FailureRole::kStopped:
    case FailureRole::kEnded:
      return "also_ended";
    case FailureRole::kFailedAsWell:
      return "failed as well";
  }
  return "";
}

void put_activity(Json& json, const LastActivity& seen) {
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

const std::set<std::string> kOfTheJob = {"job", "outcome", "code", "restarts"};  // not taken from the details

const char* outcome_of(int code) {
  switch (code) {
    case 0:
      return "succeeded";
    case kExitSaved:
      return "saved";
    default:
      return "failed";
  }
}

Status write_in_place(const std::string& path, const std::string& text) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) return system_error(errno, "cannot write the report to " + path);
  if (!S_ISREG(info.st_mode) && !S_ISCHR(info.st_mode))
    return Error{.code = Code::kSystem, .detail = "cannot write the report to " + path + ", which is no longer a file"};
  if (S_ISREG(info.st_mode) && ::ftruncate(fd.get(), 0) != 0)
    return system_error(errno, "cannot write the report to " + path);
  return write_all(fd.get(), std::as_bytes(std::span(text)), path);
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
  put_activity(json, failure.seen);
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
    rank["role"] = name_of(role_of(worker, failure));
    put_exit(rank, worker.exit);
    if (const auto seen = failure.others.find(worker.rank); seen != failure.others.end())
      put_activity(rank, seen->second);
    json["ranks"].push_back(std::move(rank));
  }
  // The output of a rank need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string job_report(const JobEnd& end) {
  Json json;
  json["job"] = end.job;
  json["outcome"] = outcome_of(end.code);
  json["code"] = end.code;
  json["restarts"] = end.restarts;
  if (end.attempt >= 0) json["attempt"] = end.attempt;
  if (!end.failure.empty()) json["failure"] = end.failure;
  if (end.rank >= 0) json["rank"] = end.rank;
  const Json details = is_shallow_json(end.details) ? Json::parse(end.details) : Json();
  if (details.is_object())
    for (const auto& [name, value] : details.items())
      if (!kOfTheJob.contains(name)) json[name] = value;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status write_report_file(const std::string& path, const std::string& text) {
  struct stat info {};
  const bool there = ::lstat(path.c_str(), &info) == 0;
  if (there && (S_ISLNK(info.st_mode) || S_ISCHR(info.st_mode))) return write_in_place(path, text);
  const Status written = write_new_file(path, text);
  return written.ok() || !there || !S_ISREG(info.st_mode) ? written : write_in_place(path, text);
}

void remove_old_report(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) (void)::unlink(path.c_str());
}

}  // namespace tutti::launch
