#pragma once
// `tutti run` inside a job of a scheduler: what need not be typed there.
#include <string>
#include <vector>

#include "apps/tutti/run_options.h"
#include "tutti/rendezvous/scheduler_nodes.h"

namespace tutti::cli {

// Fills in what the command line leaves open: nodes, node, master address and port, name of the job, ranks. Nothing
// under --standalone, or where --nnodes asks for another number of nodes. kUsage: the master's address is needed and
// nobody tells it.
Status fill_from(const rendezvous::Allocation& allocation, RunTexts& texts, launch::JobOptions& job);

// Whether the launcher has to start itself on the other nodes of the allocation, by Allocation::others.
bool starts_others(const rendezvous::Allocation& allocation, const RunTexts& texts);

// The command that starts `tutti run ARGUMENTS` once on every node of an allocation of Slurm. `self`: the path of
// tutti.
std::vector<std::string> srun_command(const rendezvous::Allocation& allocation, const std::string& self,
                                      const std::vector<std::string>& arguments);
// Becomes that command, with a secret of the job in the environment unless there is one. Returns only on failure.
Error become_srun(const rendezvous::Allocation& allocation, const std::vector<std::string>& arguments);

}  // namespace tutti::cli
