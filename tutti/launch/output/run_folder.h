#pragma once
// The folder of a job's logs, DIR/JOB, which belongs to one run of the job: the one that goes on, or the last.
//
//   DIR/JOB/attempt_<n>/...          of this run
//   DIR/JOB.20261121-160312/...      of an earlier one of that name, by the time at which it began
//   DIR/JOB/.run                     which run it is; its agents hold a shared lock on it
//   DIR/JOB/.claim                   locked by whoever looks at .run
//
// The agents of several nodes may share DIR/JOB (one host, or a file system that all of them see) or have one each.
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti {

class RunFolder {
 public:
  // `run`: a word that all agents of this run know and no other run has; empty: not known to this one, which came when
  // the others were running, and then whatever runs there is taken to be theirs. What an earlier run left is moved away
  // first. kUsage: another run of that name is alive and writes there. Blocks for some seconds at most.
  static Result<RunFolder> claim(const std::string& log_dir, const std::string& job, const std::string& run);

  // Where the logs of an earlier run are now; empty: there were none.
  const std::string& moved_to() const { return moved_to_; }

 private:
  RunFolder(Fd held, std::string moved_to) : held_(std::move(held)), moved_to_(std::move(moved_to)) {}

  Fd held_;
  std::string moved_to_;
};

}  // namespace tutti
