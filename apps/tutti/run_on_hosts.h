#pragma once
// `tutti run --hosts`: the hosts, and what is said to the launchers there.
#include <optional>
#include <string>
#include <vector>

#include "apps/tutti/run_options.h"
#include "tutti/launch/ssh/near_end.h"
#include "tutti/rendezvous/scheduler_nodes.h"

namespace tutti::cli {

// The hosts that --hosts or --hostfile names, or a job script of PBS; none: the job is not started over ssh. kUsage:
// both are given, -n contradicts the counts, or an option that makes no sense together with them.
Result<std::optional<HostList>> hosts_of(const RunTexts& texts, const std::optional<Allocation>& allocation);

// `arguments` of tutti run without the options that only this end takes, and without the program (the last
// `program_words`).
std::vector<std::string> options_for_hosts(const std::vector<std::string>& arguments, std::size_t program_words);

// Runs the job there; `rest` is the program and its arguments, perhaps after "--".
Result<int> run_on_hosts(const HostList& hosts, const RunTexts& texts, const JobOptions& job,
                         const std::vector<std::string>& arguments, const std::vector<std::string>& rest);

}  // namespace tutti::cli
