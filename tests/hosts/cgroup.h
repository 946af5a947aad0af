#pragma once
// A control group (v1) of a test: limits of memory, processes and processor time, and the freezer. As root, where the
// controllers are mounted below /sys/fs/cgroup.
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::testing {

class Cgroup {
 public:
  // The error says why there is none.
  static Result<std::unique_ptr<Cgroup>> make(const std::string& controller);
  ~Cgroup();  // thaws it, ends what is in it, removes it
  Cgroup(const Cgroup&) = delete;

  Status set(const std::string& file, const std::string& value) const;
  Status add(pid_t pid) const { return set("cgroup.procs", std::to_string(pid)); }
  // Words to be put before a command that is to run in the group.
  std::vector<std::string> entering() const;

 private:
  explicit Cgroup(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
};

}  // namespace tutti::testing
