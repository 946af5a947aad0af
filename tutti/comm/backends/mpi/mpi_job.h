#pragma once
// The MPI of this process. It is initialized once and finalized once, and may not support several threads at a time.
#include <mpi.h>

#include <optional>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/mutex.h"

namespace tutti::comm::mpi_engine {

// Initializes MPI if it is not yet initialized, and finalizes it when the process exits. Fails with kUnsupported if MPI
// cannot be used from several threads, even one at a time. Fails with kUsage if no mpirun or srun started this process.
Status begin_mpi();

// Held around every call of MPI. Does nothing if MPI accepts calls from several threads at once.
class MpiCall {
 public:
  MpiCall();

 private:
  std::optional<MutexLock> lock_;
};

// Called when a group has failed: MPI_Finalize would wait for ranks that may be gone, so it is skipped.
void give_mpi_up();
bool is_given_up();

// "MPI_ERR_TRUNCATE: message truncated"
std::string words_of(int mpi_error);

}  // namespace tutti::comm::mpi_engine
