// Order matters: mpirun inside a Slurm job starts its daemons with srun, so its ranks carry SLURM_PROCID of a daemon;
// the MPI's own variables are the inner ones and win. Slurm itself is believed only inside a step: an sbatch or salloc
// shell has SLURM_PROCID=0 and SLURM_NTASKS=N too, but is one process and no rank. Its special steps (batch script,
// interactive, extern) have the highest numbers a step id can have.
#include "tutti/rendezvous/schedulers.h"

#include <vector>

#include "tutti/base/text.h"

namespace tutti {
namespace {

struct Names {
  const char* starter;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
  std::vector<const char*> job;  // the first one that is set
};

// The innermost first.
const std::vector<Names>& table() {
  static const std::vector<Names> lines = {
      {"mpirun",
       "OMPI_COMM_WORLD_RANK",
       "OMPI_COMM_WORLD_SIZE",
       "OMPI_COMM_WORLD_LOCAL_RANK",
       "OMPI_COMM_WORLD_LOCAL_SIZE",
       {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"}},
      {"mpirun",
       "MV2_COMM_WORLD_RANK",
       "MV2_COMM_WORLD_SIZE",
       "MV2_COMM_WORLD_LOCAL_RANK",
       "MV2_COMM_WORLD_LOCAL_SIZE",
       {"PMI_JOBID"}},
      {"aprun", "PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", {"PALS_APID"}},
      {"jsrun",
       "JSM_NAMESPACE_RANK",
       "JSM_NAMESPACE_SIZE",
       "JSM_NAMESPACE_LOCAL_RANK",
       "JSM_NAMESPACE_LOCAL_SIZE",
       {"LSB_JOBID"}},
      {"flux run", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "", {"FLUX_JOB_ID"}},
  };
  return lines;
}
const Names kPmi = {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {"PMI_JOBID"}};

constexpr std::int64_t kFirstSpecialStep = 0xfffffff0;

SchedulerFacts::Fact fact(const Environment& environment, const char* variable) {
  return {variable, *variable ? lookup(environment, variable) : std::nullopt};
}

std::optional<SchedulerFacts> read(const Environment& environment, const Names& names) {
  SchedulerFacts facts;
  facts.rank = fact(environment, names.rank);
  facts.world_size = fact(environment, names.world_size);
  if (!facts.rank.value || !facts.world_size.value) return std::nullopt;
  facts.starter = names.starter;
  facts.local_rank = fact(environment, names.local_rank);
  facts.local_world_size = fact(environment, names.local_world_size);
  for (const char* variable : names.job)
    if (facts.job.empty()) facts.job = lookup(environment, variable).value_or("");
  return facts;
}

SchedulerFacts::Fact first_of(const Environment& environment, std::initializer_list<const char*> variables) {
  for (const char* variable : variables)
    if (auto value = lookup(environment, variable)) return {variable, value};
  return {*variables.begin(), std::nullopt};
}

// How many tasks of the step are on this node, from "2(x3),1" and the node's number.
std::optional<std::string> slurm_local_size(const Environment& environment, const std::string& list) {
  const auto counts = expand_counts(list);
  const auto node = parse_int(lookup(environment, "SLURM_NODEID").value_or(""));
  if (!counts.ok() || !node || *node < 0 || std::size_t(*node) >= counts->size()) return std::nullopt;
  return std::to_string((*counts)[std::size_t(*node)]);
}

std::optional<SchedulerFacts> read_slurm(const Environment& environment) {
  const auto step = slurm_step_of(environment);
  SchedulerFacts facts;
  facts.rank = fact(environment, "SLURM_PROCID");
  facts.world_size = first_of(environment, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
  if (!step || !facts.rank.value || !facts.world_size.value) return std::nullopt;
  facts.starter = "srun";
  facts.local_rank = fact(environment, "SLURM_LOCALID");
  facts.local_world_size = first_of(environment, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (auto& per_node = facts.local_world_size.value) per_node = slurm_local_size(environment, *per_node);
  const auto hosts = first_of(environment, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"}).value;
  if (const auto number = parse_int(hosts.value_or(""))) facts.hosts = int(*number);
  if (const auto job = first_of(environment, {"SLURM_JOB_ID", "SLURM_JOBID"}).value) facts.job = *job + "." + *step;
  return facts;
}

// An indexed Job tells the index alone; how many pods it has stands in WORLD_SIZE if its manifest says so.
std::optional<SchedulerFacts> read_kubernetes(const Environment& environment) {
  if (!lookup(environment, "KUBERNETES_SERVICE_HOST") || lookup(environment, "RANK")) return std::nullopt;
  SchedulerFacts facts;
  facts.rank = fact(environment, "JOB_COMPLETION_INDEX");
  facts.world_size = fact(environment, "WORLD_SIZE");
  if (!facts.rank.value || !facts.world_size.value) return std::nullopt;
  facts.starter = "Kubernetes";
  return facts;
}

std::string said(const SchedulerFacts& facts) {
  return facts.rank.variable + "=" + *facts.rank.value + " " + facts.world_size.variable + "=" +
         *facts.world_size.value;
}

}  // namespace

std::optional<std::string> lookup(const Environment& environment, const std::string& name) {
  const auto at = environment.find(name);
  if (at == environment.end() || at->second.empty()) return std::nullopt;
  return at->second;
}

std::optional<std::string> slurm_step_of(const Environment& environment) {
  const auto step = first_of(environment, {"SLURM_STEP_ID", "SLURM_STEPID"}).value;
  if (!step) return std::nullopt;
  const auto number = parse_int(*step);
  if (!number || *number < 0 || *number >= kFirstSpecialStep) return std::nullopt;
  return step;
}

Result<std::optional<SchedulerFacts>> scheduler_of(const Environment& environment) {
  std::optional<SchedulerFacts> found;
  for (const Names& names : table())
    if (!found) found = read(environment, names);
  const auto pmi = read(environment, kPmi);
  if (found && pmi && found->starter == "mpirun" &&
      (found->rank.value != pmi->rank.value || found->world_size.value != pmi->world_size.value))
    return Error{
        .code = Code::kMismatch,
        .detail = "two launchers speak for this process and disagree: " + said(*found) + ", but " + said(*pmi),
        .hint = "unset the variables of the one that did not start it, for example with env -u " + pmi->rank.variable};
  if (!found) found = pmi;
  if (!found) found = read_slurm(environment);
  if (!found) found = read_kubernetes(environment);
  return found;
}

std::string slurm_note(const Environment& environment) {
  const auto tasks = first_of(environment, {"SLURM_NTASKS", "SLURM_NPROCS"});
  if (!lookup(environment, "SLURM_JOB_ID") || slurm_step_of(environment) || !tasks.value || tasks.value == "1")
    return {};
  return tasks.variable + " is " + *tasks.value +
         ", but srun did not start this process: it runs alone (start it with srun to use the tasks)";
}

}  // namespace tutti
