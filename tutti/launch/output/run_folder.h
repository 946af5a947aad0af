#pragma once
// The folder of a job's logs, DIR/JOB. It belongs to one run of the job: the running one, or the last.
//
//   DIR/JOB/attempt_<n>/rank_<r>/    stdout.log, stderr.log, and error.json, the rank's TORCHELASTIC_ERROR_FILE
//   DIR/JOB.20261121-160312/...      an earlier run of that job, by the time at which it began
//   DIR/JOB/.run                     identifies the run; its agents hold a shared lock on it
//   DIR/JOB/.claim                   locked by the agent that reads .run
//
// The agents of several nodes may share DIR/JOB (one host, or a shared file system) or have one each.
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti::launch {

// DIR/<job>/attempt_<n>, of the round with this number.
std::string attempt_folder(const std::string& log_dir, const std::string& job, int round);
// Makes ATTEMPT/rank_<r>; returns its path.
Result<std::string> make_rank_folder(const std::string& attempt, int rank);

class RunFolder {
 public:
  // `run`: an identifier that all agents of this run know and no other run has. It is empty for an agent that joined a
  // running job; the run that writes there is then taken to be its own. Logs of an earlier run are moved away first.
  // kUsage: another run of that name is alive and writes there. Blocks for some seconds at most.
  static Result<RunFolder> claim(const std::string& log_dir, const std::string& job, const std::string& run);

  // The new path of an earlier run's logs; empty: there were none.
  const std::string& moved_to() const { return moved_to_; }

 private:
  RunFolder(Fd held, std::string moved_to) : held_(std::move(held)), moved_to_(std::move(moved_to)) {}

  Fd held_;
  std::string moved_to_;
};

}  // namespace tutti::launch
