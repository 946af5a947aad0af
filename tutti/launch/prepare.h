#pragma once
// From what the command line said to a job as its agent and the nodes see it, with all checked that can be checked
// without starting anything.
#include "tutti/launch/agent.h"
#include "tutti/launch/job.h"
#include "tutti/launch/membership/options.h"

namespace tutti {

struct Prepared {
  AgentSpec agent;  // met, table and the descriptors are for the caller, and error_files, for a job without log_dir
  NodesOptions nodes;
};
// kUsage says what does not fit together. Looks at the machine; a port is bound for a moment, to see that it is free.
Result<Prepared> prepare(const JobOptions& options);

// A rank that an option names, and the job does not have, or a local rank that none of its nodes has: the console, or
// the input, would stay empty.
Status check_ranks(const AgentSpec& agent, const std::vector<int>& ranks_of_nodes);

}  // namespace tutti
