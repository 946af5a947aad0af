#pragma once
// Memory that outlives the processes which fill it: the agent of a node makes it, holds it for as long as the job runs,
// and hands its descriptor to every worker that it starts (TUTTI_KEPT_MEMORY_FD). All workers of the node see the same,
// those of later attempts as well. It is a sparse file without a name: what nobody has written takes no memory, and it
// is gone with the last process that has it open.
#include <cstdint>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti {

class KeptMemory {
 public:
  static constexpr std::uint64_t kBytes = std::uint64_t(1) << 53;  // room, not memory
  static constexpr std::uint64_t kBegin = std::uint64_t(1) << 20;  // of what users may write
  static constexpr const char* kVariable = "TUTTI_KEPT_MEMORY_FD";

  // The agent: fresh memory. The descriptor closes at execve() unless it is handed on by its number. kLimit: files may
  // not be as large (ulimit -f).
  static Result<Fd> create();
  // The worker: what its agent handed to it. kNotFound: nobody did; kMismatch: the variable names something else.
  static Result<KeptMemory> open_given();
  // The memory behind the descriptor, which is the caller's still.
  static Result<KeptMemory> open(int fd);

  int fd() const { return fd_.get(); }
  const std::string& keeper() const { return keeper_; }  // a random word: the same for all who see this memory

 private:
  KeptMemory(Fd fd, std::string keeper) : fd_(std::move(fd)), keeper_(std::move(keeper)) {}

  Fd fd_;
  std::string keeper_;
};

}  // namespace tutti
