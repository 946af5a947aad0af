#pragma once
// The words about how a job ended: pure functions of facts, so that tests can hold them.
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "tutti/launch/process.h"

namespace tutti {

// One rank at the end of the job.
struct WorkerEnd {
  int rank = 0;
  pid_t pid = -1;
  Exit exit;
  double seconds = 0;               // it ran
  std::uint64_t most_resident = 0;  // bytes of memory that it, or a helper of it, had at most; 0: not known
  bool stopped = false;             // it was running when the agent told it to stop
  bool suspended = false;           // then it was stopped by a signal (SIGSTOP) or a debugger, and did nothing
  int sent = 0;                     // the last signal that the agent sent it to stop it; 0: none
  bool needed_kill = false;         // it did not leave within the grace
};

// What a rank was doing when the job failed, as its progress page had it.
struct LastSeen {
  std::int64_t step = -1;  // that it had begun last; -1: it told none
  std::string doing;       // "step 12, for 3.2 s in all_reduce #42 (f32[1024], sum) on group world"; empty: unknown
  std::vector<std::string> stack;  // the innermost call first; of a hang
  std::string message;             // what the rank said of its own end
  bool for_others = false;         // a call of it failed because another rank was gone, or had ended the group
  std::string alarm;               // what it wanted people to know before (comm/alarm.h)
};

struct Failure {
  std::string what = "the job";  // failed; "attempt 2" where the job goes on
  WorkerEnd culprit;
  int node = 0;  // where it ran, as is `host`
  std::string host;
  std::string job;
  int attempt = 0;
  std::string headline;  // what happened, where no rank ended: "no rank has got on for 5 min: ..."; empty: its end
  std::string message;   // what the rank itself said: of its uncaught exception, or in its TORCHELASTIC_ERROR_FILE
  LastSeen seen;         // of the culprit
  std::map<int, LastSeen> others;      // by rank
  std::vector<std::string> backtrace;  // of the culprit, the innermost first
  std::string memory;                  // what is known of its memory; empty: nothing
  std::deque<std::string> last_lines;
  std::string log_folder;      // empty: none
  bool out_of_memory = false;  // the cgroup's OOM killer struck while the job ran
  double grace = 0;
  std::string flight;  // flight_line(); empty: none
};

// What a rank of the node where it happened has to do with a failure.
enum class Part {
  kCulprit,
  kSuspended,    // it was stopped (SIGSTOP), and the others may have waited for it
  kKilled,       // it ran on after SIGTERM, and needed SIGKILL
  kStopped,      // it was running, and ended because of the failure
  kEnded,        // it had ended well before, or had saved
  kFailedAsWell  // it ended in a way that neither tutti nor its message explains: because of the culprit, or by itself
};
Part part_of(const WorkerEnd& worker, const Failure& failure);

// "rank 2 (pid 8123 on host) was killed by SIGKILL": also the value of the store key `fault`.
std::string fault_text(const WorkerEnd& worker, const std::string& host);
// The same facts as JSON, for programs; ends with '\n'. docs/launching.md has its fields.
std::string failure_json(const Failure& failure, const std::vector<WorkerEnd>& all);
// The block that ends the output of a failed job, several lines without the last '\n'.
std::string failure_report(const Failure& failure, const std::vector<WorkerEnd>& all);
// Of the ranks of a node when the failure was on another one, a line for each part in it; the culprit's rank is -1.
std::string elsewhere_report(const Failure& failure, const std::vector<WorkerEnd>& all);
// "flight records of ranks 0, 2: tutti flight DIR says who waited for whom"; empty if no rank has written one there
// since `started`.
std::string flight_line(const std::string& folder, std::chrono::system_clock::time_point started);

}  // namespace tutti
