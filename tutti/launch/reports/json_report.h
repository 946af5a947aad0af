#pragma once
// The report of a job's end as JSON, for programs: the part about a failure (failure_json(), also report.json in the
// log folder), the whole job (`tutti run --report FILE`), and writing that file. docs/reference/json.md lists the
// fields.
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/launch/reports/report.h"

namespace tutti::launch {

// A failure, as the node of the culprit knows it; ends with '\n'.
std::string failure_json(const Failure& failure, const std::vector<WorkerEnd>& all);

// How the job ended, as one node knows it.
struct JobEnd {
  std::string job;
  int attempt = -1;     // the last round that this node took part in; -1: none
  int restarts = 0;     // until then
  int code = 0;         // the exit code of tutti run
  std::string failure;  // the sentence for what ended the job; empty: it succeeded, or has saved
  int rank = -1;        // the rank that failed; -1: none
  std::string details;  // failure_json() from the node of that rank; empty: not known here
};
// Ends with '\n'. Details that are not valid JSON are left out.
std::string job_report(const JobEnd& end);

// Writes the report to the path that the user gave. A new file replaces an old one, and is never seen half written. If
// the path is a link or a device, or its folder takes no new file, the text is written to what is there. A pipe without
// a reader, which a rank may have put there, does not block.
Status write_report_file(const std::string& path, const std::string& text);
// At the start of a job: removes the file of an earlier job, which would be taken for this one's if this one is killed.
void remove_old_report(const std::string& path);

}  // namespace tutti::launch
