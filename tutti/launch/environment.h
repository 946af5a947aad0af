#pragma once
// The environment of a worker: the user's variables, without those of other launchers, plus torchrun's and Tutti's.
#include <string>
#include <vector>

#include "tutti/base/env.h"

namespace tutti::launch {

// "NAME=value" strings for execve().
std::vector<std::string> to_strings(const Environment& environment);

// Removes variables that another launcher (mpirun, srun, torchrun, an outer tutti run) left and that a worker would
// take for its own rank or rendezvous, and the variables that gave this launcher the secret. Returns the names of the
// former, ascending.
std::vector<std::string> remove_stale(Environment& environment);

// What a worker's environment says about it and the job.
struct WorkerVariables {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node = 0;
  int nodes = 1;
  std::string master_address;
  int master_port = 0;
  std::string job;
  int generation = 0;  // TUTTI_GENERATION: the number of the round
  int restarts = 0;    // TORCHELASTIC_RESTART_COUNT
  int max_restarts = 0;
  std::string store;          // TUTTI_STORE: "10.0.0.1:29501", or "unix:@name,10.0.0.1:29501" on the host of the store
  std::string flight_folder;  // TUTTI_FLIGHT_DIR; empty: left as it is
  std::string error_file;     // where the worker may write why it failed, in torchelastic's JSON
  std::string role = "default";
  int secret_fd = -1;       // the sealed memfd with the job's secret; -1: the job has none (--insecure)
  int kept_memory_fd = -1;  // the memory that the node keeps for its ranks (base/memory.h); -1: none
  std::string interface;    // the network of a job on several hosts, for Gloo, NCCL and TensorPipe; empty: they decide
  int progress_fd = -1;     // the rank's progress page (trace/progress/page.h); -1: none
};
void set_worker_variables(Environment& environment, const WorkerVariables& worker);

}  // namespace tutti::launch
