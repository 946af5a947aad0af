#pragma once
// What `tutti doctor` and `tutti env` print: findings about a host or a pair of hosts, each a line with what to do
// about it, and the facts about a host that a bug report needs.
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/env.h"
#include "tutti/base/error.h"
#include "tutti/doctor/host_info.h"

namespace tutti::doctor {

enum class Grade { kOk, kWarn, kFail };  // a job runs well; runs worse than it could; does not run

struct Finding {
  Grade grade = Grade::kOk;
  std::string subject;  // "cores", "node-a -> node-b"
  std::string fact;     // what was found, without a full stop
  std::string fix;      // what to do; empty: nothing

  bool operator==(const Finding&) const = default;
};

const char* name(Grade grade);  // "OK", "WARN", "FAIL"
// A line for each: "WARN  cores    4 ranks on 2 cores (fix: ...)", the subjects in a column.
std::string to_text(const std::vector<Finding>& findings);
// "14 OK, 1 WARN, 0 FAIL"
std::string summary(const std::vector<Finding>& findings);
Grade worst(const std::vector<Finding>& findings);

// Sent between nodes, and printed by `tutti doctor --json`: a list of objects with the members' names.
std::string to_json(const std::vector<Finding>& findings);
// kCorrupt: from another version of tutti, or damaged.
Result<std::vector<Finding>> findings_from_json(const std::string& text);

// `tutti env`: names and values, in the order to be shown. Of the `environment`, the variables of tutti, launchers,
// schedulers and the libraries below are shown, secrets as "(set)".
using NamedFacts = std::vector<std::pair<std::string, std::string>>;
NamedFacts environment_report(const HostInfo& host, const Environment& environment);

}  // namespace tutti::doctor
