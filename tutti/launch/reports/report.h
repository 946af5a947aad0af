#pragma once
// The text about how a job ended: pure functions of what is known, so that tests can check them. The same as JSON is in
// json_report.h.
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "tutti/launch/process.h"

namespace tutti::launch {

// One rank at the end of the job.
struct WorkerEnd {
  int rank = 0;
  pid_t pid = -1;
  Exit exit;
  double seconds = 0;               // how long it ran
  std::uint64_t most_resident = 0;  // peak memory of it or of a helper of it, in bytes; 0: not known
  bool stopped = false;             // it was running when the agent told it to stop
  bool suspended = false;           // a signal (SIGSTOP) or a debugger had stopped it then
  int sent = 0;                     // the last signal that the agent sent to stop it; 0: none
  bool needed_kill = false;         // it did not leave within the grace period
};

// What a rank was doing when the job failed, from its progress page.
struct LastActivity {
  std::int64_t step = -1;  // the last step it began; -1: it reported none
  std::string doing;       // "step 12, for 3.2 s in all_reduce #42 (f32[1024], sum) on group world"; empty: unknown
  std::vector<std::string> stack;  // of a hang; the innermost call first
  std::string message;             // the rank's own message about its end; see Failure
  bool for_others = false;         // a call of it failed because another rank was gone, or had ended the group
  std::string alarm;               // an earlier message for people (comm/alarm.h)
};

struct Failure {
  std::string what = "the job";  // what failed; "attempt 2" if the job goes on
  WorkerEnd culprit;
  int node = 0;  // where the culprit ran, as is `host`
  std::string host;
  std::string job;
  int attempt = 0;
  std::string headline;  // what happened, if no rank ended: "no rank has made progress for 5 min: ..."; empty: its end
  std::string message;   // the culprit's own: its uncaught exception, or its TORCHELASTIC_ERROR_FILE; below the first
                         // line a traceback of Python
  LastActivity seen;     // of the culprit
  std::map<int, LastActivity> others;  // by rank
  std::vector<std::string> backtrace;  // of the culprit, the innermost call first
  std::string memory;                  // what is known about its memory; empty: nothing
  std::deque<std::string> last_lines;
  std::string log_folder;      // empty: none
  bool out_of_memory = false;  // the cgroup's out-of-memory killer struck while the job ran
  double grace = 0;
  std::string flight;  // flight_line(); empty: none
};

// The role of a rank, on the node of the culprit, in a failure.
enum class FailureRole {
  kCulprit,
  kSuspended,    // it was stopped (SIGSTOP), and the others may have waited for it
  kKilled,       // it ran on after SIGTERM, and needed SIGKILL
  kStopped,      // it was running, and ended because of the failure
  kEnded,        // it had succeeded before, or had saved
  kFailedAsWell  // neither the agent nor its message explains its end: because of the culprit, or by itself
};
FailureRole role_of(const WorkerEnd& worker, const Failure& failure);

// "rank 2 (pid 8123 on host) was killed by SIGKILL": also the value of the store key `fault`.
std::string fault_text(const WorkerEnd& worker, const std::string& host);
// The block that ends the output of a failed job, several lines without the last '\n'.
std::string failure_report(const Failure& failure, const std::vector<WorkerEnd>& all);
// For a node without the culprit: a line for each role of its ranks. The culprit's rank is -1.
std::string elsewhere_report(const Failure& failure, const std::vector<WorkerEnd>& all);
// "flight records of ranks 0, 2: tutti flight DIR says who waited for whom"; empty if no rank has written one there
// since `started`.
std::string flight_line(const std::string& folder, std::chrono::system_clock::time_point started);

}  // namespace tutti::launch
