#pragma once
// The words about how a job ended: pure functions of facts, so that tests can hold them.
#include <chrono>
#include <deque>
#include <string>
#include <vector>

#include "tutti/launch/process.h"

namespace tutti {

// One rank at the end of the job.
struct WorkerEnd {
  int rank = 0;
  pid_t pid = -1;
  Exit exit;
  double seconds = 0;        // it ran
  bool stopped = false;      // it was running when the agent told it to stop
  bool suspended = false;    // then it was stopped by a signal (SIGSTOP) or a debugger, and did nothing
  bool needed_kill = false;  // it did not leave within the grace
};

struct Failure {
  std::string what = "the job";  // failed; "attempt 2" where the job goes on
  WorkerEnd culprit;
  std::string host;
  std::string message;  // what the rank itself wrote into its TORCHELASTIC_ERROR_FILE
  std::deque<std::string> last_lines;
  std::string log_file;        // empty: none
  bool out_of_memory = false;  // the cgroup's OOM killer struck while the job ran
  double grace = 0;
  std::string flight;  // flight_line(); empty: none
};

// "rank 2 (pid 8123 on host) was killed by SIGKILL": also the value of the store key `fault`.
std::string fault_text(const WorkerEnd& worker, const std::string& host);
// The block that ends the output of a failed job, several lines without the last '\n'.
std::string failure_report(const Failure& failure, const std::vector<WorkerEnd>& all);
// "flight records of ranks 0, 2: tutti flight DIR says who waited for whom"; empty if no rank has written one there
// since `started`.
std::string flight_line(const std::string& folder, std::chrono::system_clock::time_point started);
// The words of an error file: torchelastic's JSON with message a text or an object, or plain text; empty if there are
// none.
std::string error_file_message(const std::string& path);

}  // namespace tutti
