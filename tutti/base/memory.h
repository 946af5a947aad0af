#pragma once
// Large private memory, and memory that outlives the processes that write it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti {

// Zeroed private memory for random access, such as embedding tables, aligned to 2 MiB. It is on huge pages if the
// system has transparent huge pages in mode "madvise" or "always". The kernel allocates a page when it is first
// touched. kLimit: no address space is left; the error names `what` and has the hint.
Result<Mapping> huge_memory(std::size_t bytes, const char* what, const char* hint);

// Memory that outlives the workers. The agent of a node creates it, holds it while the job runs, and passes its
// descriptor to each worker that it starts (TUTTI_KEPT_MEMORY_FD). All workers of the node map the same memory, also
// those of later attempts. It is a sparse file without a name: pages that were never written take no memory, and the
// kernel frees it when the last process closes it.
class KeptMemory {
 public:
  static constexpr std::uint64_t kBytes = std::uint64_t(1) << 53;  // address space, not memory
  static constexpr std::uint64_t kBegin = std::uint64_t(1) << 20;  // start of the part that users may write
  static constexpr const char* kVariable = "TUTTI_KEPT_MEMORY_FD";

  // For the agent. The descriptor closes at execve() unless it is passed on by number. kLimit: the file would exceed
  // ulimit -f.
  static Result<Fd> create();
  // For a worker: opens the memory of its agent. kNotFound: there is none. kMismatch: the variable names another
  // descriptor.
  static Result<KeptMemory> open_given();
  // Opens the memory of this descriptor, which the caller keeps.
  static Result<KeptMemory> open(int fd);

  int fd() const { return fd_.get(); }
  const std::string& keeper() const { return keeper_; }  // a random identifier of this memory

 private:
  KeptMemory(Fd fd, std::string keeper) : fd_(std::move(fd)), keeper_(std::move(keeper)) {}

  Fd fd_;
  std::string keeper_;
};

}  // namespace tutti
