#include "tutti/comm/backends/mpi/mpi_job.h"

#include <atomic>
#include <cstdlib>

namespace tutti::comm::mpi_engine {
namespace {

// MPI is one instance per process, and so is this state.
Mutex mpi_mutex;                    // guards no variable: makes calls of MPI one at a time
bool one_thread_at_a_time = false;  // written before other threads call MPI
std::atomic<bool> given_up{false};

bool was_started_by_mpi() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"})
    if (std::getenv(variable)) return true;
  return false;
}

void end_mpi() {
  int ended = 0;
  if (MPI_Finalized(&ended) == MPI_SUCCESS && !ended && !given_up.load()) MPI_Finalize();
}

Status begin() {
  int begun = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&begun);
  if (begun) {
    MPI_Query_thread(&level);
  } else {
    if (!was_started_by_mpi())
      return Error{.code = Code::kUsage,
                   .detail = "the engine mpi needs ranks that MPI has started, and this process was not",
                   .hint = "start the program with mpirun or srun --mpi=pmix, or take another engine"};
    if (const int failed = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level); failed != MPI_SUCCESS)
      return Error{.code = Code::kSystem, .detail = "MPI could not start: " + words_of(failed)};
    std::atexit(end_mpi);
  }
  if (level < MPI_THREAD_SERIALIZED)
    return Error{.code = Code::kUnsupported,
                 .detail = "MPI was initialized for one thread only",
                 .hint = "let the program call MPI_Init_thread with MPI_THREAD_MULTIPLE, or leave that to tutti"};
  one_thread_at_a_time = level < MPI_THREAD_MULTIPLE;
  return {};
}

}  // namespace

Status begin_mpi() {
  static const Status begun = begin();
  return begun;
}

MpiCall::MpiCall() {
  if (one_thread_at_a_time) lock_.emplace(mpi_mutex);
}

void give_mpi_up() { given_up.store(true); }
bool is_given_up() { return given_up.load(); }

std::string words_of(int mpi_error) {
  char words[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(mpi_error, words, &length);
  return {words, words + length};
}

}  // namespace tutti::comm::mpi_engine
