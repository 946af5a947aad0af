#pragma once
// MPI as it is in a process: begun once, ended once, and maybe not for several threads at a time.
#include <mpi.h>

#include <optional>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/mutex.h"

namespace tutti::mpi_engine {

// Begins MPI if nobody has; it ends with the process. kUnsupported where MPI cannot be used from several threads, even
// one at a time; kUsage where no mpirun or srun has started this process.
Status begin_mpi();

// Held around every call of MPI. Free where MPI takes calls from several threads at once.
class MpiCall {
 public:
  MpiCall();

 private:
  std::optional<MutexLock> lock_;
};

// A group has failed: MPI's own end would wait for ranks that may be gone, so it is left out.
void give_mpi_up();
bool is_given_up();

// "MPI_ERR_TRUNCATE: message truncated"
std::string words_of(int mpi_error);

}  // namespace tutti::mpi_engine
