// Programs know torchrun's variables, so workers get all of them with torchrun's meaning: RANK in the world, LOCAL_RANK
// on the host, GROUP_RANK the number of the host. MASTER_ADDR and MASTER_PORT are for the program (PyTorch's rank 0
// binds the port). Tutti's own store is TUTTI_STORE, and TORCHELASTIC_USE_AGENT_STORE=False tells PyTorch that the port
// is not served yet.
//
// A shell inside mpirun, srun or another job has variables that name a rank. A program that believed them would join
// another world, so they are removed here: only variables about ranks and rendezvous, not a site's tuning.
#include "tutti/launch/environment.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "tutti/base/memory.h"

namespace tutti::launch {
namespace {

// OMPI_MCA_*, PMIX_MCA_*, MV2_* and the like also hold a user's tuning (OMPI_MCA_btl): only those that name a rank or
// its daemon are removed.
constexpr std::array kStalePrefixes = {
    "PMI_",  "PMIX_", "OMPI_COMM_WORLD_", "OMPI_MCA_ess_", "OMPI_MCA_orte_ess_", "MV2_COMM_WORLD_",
    "HYDI_", "PALS_", "MPI_LOCAL",        "TORCHELASTIC_"};
constexpr std::array kTuningPrefixes = {"PMIX_MCA_"};
constexpr std::array kStaleNames = {"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE",
                                    "NODE_RANK",
                                    "GROUP_RANK",
                                    "GROUP_WORLD_SIZE",
                                    "ROLE_RANK",
                                    "ROLE_WORLD_SIZE",
                                    "ROLE_NAME",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "MPIRUN_RANK",
                                    "OMPI_UNIVERSE_SIZE",
                                    "OMPI_APP_CTX_NUM_PROCS",
                                    "OMPI_NUM_APP_CTX",
                                    "OMPI_FIRST_RANKS",
                                    "OMPI_FILE_LOCATION",
                                    "OMPI_COMMAND",
                                    "OMPI_ARGV",
                                    "OMPI_MCA_initial_wdir",
                                    "OMPI_MCA_orte_app_num",
                                    "OMPI_MCA_orte_bound_at_launch",
                                    "OMPI_MCA_orte_hnp_uri",
                                    "OMPI_MCA_orte_jobfam_session_dir",
                                    "OMPI_MCA_orte_local_daemon_uri",
                                    "OMPI_MCA_orte_num_nodes",
                                    "OMPI_MCA_orte_num_restarts",
                                    "OMPI_MCA_orte_precondition_transports",
                                    "OMPI_MCA_orte_top_session_dir",
                                    "SLURM_PROCID",
                                    "SLURM_LOCALID",
                                    "SLURM_NODEID",
                                    "SLURM_NTASKS",
                                    "SLURM_NPROCS",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_STEP_NUM_NODES",
                                    "SLURM_STEP_NODELIST",
                                    "SLURM_STEP_TASKS_PER_NODE",
                                    "SLURM_TASKS_PER_NODE",
                                    "SLURM_GTIDS",
                                    "TUTTI_INIT",
                                    "TUTTI_STORE",
                                    "TUTTI_JOB",
                                    "TUTTI_GENERATION",
                                    "TUTTI_PROGRESS_FD",
                                    "TUTTI_KEPT_MEMORY_FD",
                                    "TUTTI_ETCD_PASSWORD",
                                    "TUTTI_SECRET",
                                    "TUTTI_SECRET_FD",
                                    "TUTTI_SECRET_FILE",
                                    "TUTTI_INSECURE"};

bool is_stale(std::string_view name) {
  const auto begins_name = [&](std::string_view prefix) { return name.starts_with(prefix); };
  if (std::any_of(kTuningPrefixes.begin(), kTuningPrefixes.end(), begins_name)) return false;
  return std::any_of(kStalePrefixes.begin(), kStalePrefixes.end(), begins_name) ||
         std::find(kStaleNames.begin(), kStaleNames.end(), name) != kStaleNames.end();
}

// Given to this launcher, which passes the secret on in its own way.
bool is_for_us(std::string_view name) {
  return name.starts_with("TUTTI_SECRET") || name == "TUTTI_INSECURE" || name == "TUTTI_ETCD_PASSWORD";
}

}  // namespace

std::vector<std::string> to_strings(const Environment& environment) {
  std::vector<std::string> strings;
  for (const auto& [name, value] : environment) strings.push_back(name + "=" + value);
  return strings;
}

std::vector<std::string> remove_stale(Environment& environment) {
  std::vector<std::string> removed;
  for (auto at = environment.begin(); at != environment.end();) {
    if (is_stale(at->first)) {
      if (!is_for_us(at->first)) removed.push_back(at->first);
      at = environment.erase(at);
    } else {
      ++at;
    }
  }
  return removed;
}

void set_worker_variables(Environment& environment, const WorkerVariables& worker) {
  const auto set = [&](const char* name, const std::string& value) { environment[name] = value; };
  const auto set_number = [&](const char* name, int value) { environment[name] = std::to_string(value); };
  set_number("RANK", worker.rank);
  set_number("WORLD_SIZE", worker.world_size);
  set_number("LOCAL_RANK", worker.local_rank);
  set_number("LOCAL_WORLD_SIZE", worker.local_world_size);
  set_number("GROUP_RANK", worker.node);
  set_number("GROUP_WORLD_SIZE", worker.nodes);
  set_number("ROLE_RANK", worker.rank);
  set_number("ROLE_WORLD_SIZE", worker.world_size);
  set("ROLE_NAME", worker.role);
  set("MASTER_ADDR", worker.master_address);
  set_number("MASTER_PORT", worker.master_port);
  set_number("TORCHELASTIC_RESTART_COUNT", worker.restarts);
  set_number("TORCHELASTIC_MAX_RESTARTS", worker.max_restarts);
  set("TORCHELASTIC_RUN_ID", worker.job);
  set("TORCHELASTIC_USE_AGENT_STORE", "False");
  if (!worker.error_file.empty()) set("TORCHELASTIC_ERROR_FILE", worker.error_file);
  environment.emplace("PYTHONUNBUFFERED", "1");  // or a crash loses the last lines
  // Gloo would take the address of the host's own name, which is 127.0.1.1 on Debian. A user's choice stays.
  if (!worker.interface.empty())
    for (const char* library : {"GLOO", "NCCL", "TP"})
      environment.emplace(std::string(library) + "_SOCKET_IFNAME", worker.interface);
  set("TUTTI_JOB", worker.job);
  set_number("TUTTI_GENERATION", worker.generation);
  if (!worker.store.empty()) set("TUTTI_STORE", worker.store);
  if (!worker.flight_folder.empty()) set("TUTTI_FLIGHT_DIR", worker.flight_folder);
  if (worker.progress_fd >= 0) set_number("TUTTI_PROGRESS_FD", worker.progress_fd);
  if (worker.kept_memory_fd >= 0) set_number(KeptMemory::kVariable, worker.kept_memory_fd);
  if (worker.secret_fd >= 0) {
    set_number("TUTTI_SECRET_FD", worker.secret_fd);
  } else {
    set("TUTTI_INSECURE", "1");
  }
}

}  // namespace tutti::launch
