#pragma once
// How a job ended, as one node knows it, for programs: what `tutti run --report FILE` writes.
#include <string>

namespace tutti {

struct JobEnd {
  std::string job;
  int attempt = -1;     // the last round that this node took part in; -1: none
  int restarts = 0;     // until then
  int code = 0;         // that tutti run exits with
  std::string failure;  // the sentence for what ended it; empty: it ended well, or has saved
  int rank = -1;        // whose failure it was; -1: no rank's
  std::string details;  // failure_json() of the node of that rank; empty: not known here
};

// As JSON, ending with '\n'; docs/launching.md has its fields. Details that cannot be understood are left out.
std::string job_report(const JobEnd& end);

}  // namespace tutti
