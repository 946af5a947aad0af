#include "tutti/launch/reports/job_report.h"

#include <set>

#include "tutti/launch/exit_codes.h"
#include "tutti/launch/output/shallow_json.h"

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

const std::set<std::string> kOfTheJob = {"job", "outcome", "code", "restarts"};  // as this node knows them

const char* outcome_of(int code) {
  switch (code) {
    case 0:
      return "ended well";
    case kExitSaved:
      return "saved";
    default:
      return "failed";
  }
}

}  // namespace

std::string job_report(const JobEnd& end) {
  Json json;
  json["job"] = end.job;
  json["outcome"] = outcome_of(end.code);
  json["code"] = end.code;
  json["restarts"] = end.restarts;
  if (end.attempt >= 0) json["attempt"] = end.attempt;
  if (!end.failure.empty()) json["failure"] = end.failure;
  if (end.rank >= 0) json["rank"] = end.rank;
  const auto details = parse_shallow<Json>(end.details);
  if (details && details->is_object())
    for (const auto& [name, value] : details->items())
      if (!kOfTheJob.contains(name)) json[name] = value;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tutti
