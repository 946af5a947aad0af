#pragma once
// The variables that mpirun, srun and other starters of parallel programs set for each process: a table with a line for
// each starter, and Slurm's, which take more care. A starter counts only if its variables describe this very process:
// those of an allocation shell do not.
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/env.h"
#include "tutti/base/error.h"

namespace tutti::rendezvous {

// The variable's value; an empty one counts as unset.
std::optional<std::string> lookup(const Environment& environment, const std::string& name);

// The scheduler's variables for this process. Numbers as text, each with the variable that gave it.
struct SchedulerVariables {
  struct Fact {
    std::string variable;
    std::optional<std::string> value;
  };
  std::string starter;  // "mpirun", "srun", ...
  Fact rank, world_size, local_rank, local_world_size;
  std::optional<int> hosts;  // how many the ranks are spread over, where it is known
  std::string job;           // unique among the jobs of one user at one time; empty if unknown
};

// Those of the innermost starter that describes this process, or none. kMismatch if two MPIs disagree on the rank or
// the world size: then one set of variables is stale.
Result<std::optional<SchedulerVariables>> scheduler_of(const Environment& environment);

// The number of the step of Slurm that this process is a task of; none in an sbatch or salloc shell, and outside Slurm.
std::optional<std::string> slurm_step_of(const Environment& environment);

// A sentence for the log where variables of Slurm are there but this process is no task of a step; else empty.
std::string slurm_note(const Environment& environment);

// Slurm's short forms for hosts and counts, as they stand in SLURM_JOB_NODELIST and SLURM_TASKS_PER_NODE:
//   list  := item { "," item }
//   item  := { text | "[" range { "," range } "]" }      several brackets multiply: r[0-1]n[0-1] is four hosts
//   range := digits [ "-" digits ]                       zero padding is kept: [08-11] is 08 09 10 11
//   counts := count { "," count },  count := digits [ "(x" digits ")" ]
// The text comes from the environment, so nothing in it is trusted: what is unbalanced, reversed or expands to more
// than the limit is a kUsage error that shows the position.

inline constexpr std::size_t kMaxHosts = 65536;

// "a[1-2],b3" -> a1 a2 b3
Result<std::vector<std::string>> expand_hostlist(std::string_view text, std::size_t limit = kMaxHosts);
// "2(x3),1" -> 2 2 2 1
Result<std::vector<int>> expand_counts(std::string_view text, std::size_t limit = kMaxHosts);

}  // namespace tutti::rendezvous
