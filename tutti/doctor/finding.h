#pragma once
// What an examination of a host or of a pair of hosts found: a line each, with what to do about it.
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

enum class Grade { kOk, kWarn, kFail };  // a job runs well; runs, but worse than it could; does not run

struct Finding {
  Grade grade = Grade::kOk;
  std::string subject;  // "cores", "node-a -> node-b"
  std::string fact;     // what was found, without a full stop
  std::string fix;      // what to do; empty if nothing

  bool operator==(const Finding&) const = default;
};

const char* name(Grade grade);  // "OK", "WARN", "FAIL"
// A line for each: "WARN  cores    4 ranks on 2 cores (fix: ...)", the subjects in a column.
std::string to_text(const std::vector<Finding>& findings);
// "14 OK, 1 WARN, 0 FAIL"
std::string summary(const std::vector<Finding>& findings);
Grade worst(const std::vector<Finding>& findings);

// What nodes tell one another of themselves, and `tutti doctor --json` prints: a list of objects with the members'
// names.
std::string to_json(const std::vector<Finding>& findings);
// kCorrupt: of another version of tutti, or damaged.
Result<std::vector<Finding>> findings_from_json(const std::string& text);

}  // namespace tutti
