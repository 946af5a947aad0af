#pragma once
// From the options of the command line to the specification of a job for its agent and its nodes. Everything that can
// be checked without starting anything is checked here.
#include "tutti/launch/agent/agent.h"
#include "tutti/launch/job.h"
#include "tutti/launch/membership/options.h"

namespace tutti::launch {

struct Prepared {
  AgentSpec agent;  // the caller sets joined, table, the descriptors, and error_files for a job without log_dir
  NodesOptions nodes;
};
// kUsage: options that contradict each other. Reads the machine's properties, and binds a port for a moment to check
// that it is free.
Result<Prepared> prepare(const JobOptions& options);

// kUsage: an option names a rank that the job does not have, or a local rank that no node has, so the console or the
// input would stay empty.
Status check_ranks(const AgentSpec& agent, const std::vector<int>& ranks_of_nodes);

}  // namespace tutti::launch
