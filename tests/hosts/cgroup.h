#pragma once
// A control group of a test: limits of memory, processes and processor time, and (v1) the freezer. As root, where the
// controllers are mounted below /sys/fs/cgroup, as v1 or v2.
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::testing {

class Cgroup {
 public:
  // "memory", "cpu", "pids", "freezer". The error says why there is none.
  static Result<std::unique_ptr<Cgroup>> make(const std::string& controller);
  ~Cgroup();  // thaws it, ends what is in it, removes it
  Cgroup(const Cgroup&) = delete;

  Status limit_memory(std::uint64_t bytes) const;
  Status limit_processor(double cores) const;  // this share of one core, or of several
  Status set(const std::string& file, const std::string& value) const;
  Status add(pid_t pid) const { return set("cgroup.procs", std::to_string(pid)); }
  // Words to be put before a command that is to run in the group.
  std::vector<std::string> entering() const;

 private:
  Cgroup(std::string folder, bool v2) : folder_(std::move(folder)), v2_(v2) {}
  const std::string folder_;
  const bool v2_;
};

}  // namespace tutti::testing
