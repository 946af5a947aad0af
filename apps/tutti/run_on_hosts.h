#pragma once
// `tutti run --hosts`: the hosts, and what is said to the launchers there.
#include <optional>
#include <string>
#include <vector>

#include "apps/tutti/run_options.h"
#include "tutti/launch/ssh/ssh.h"
#include "tutti/rendezvous/scheduler_nodes.h"

namespace tutti::cli {

// What --hosts and --hostfile name, as they were given; none: neither was. kUsage: both.
Result<std::optional<launch::HostList>> listed_hosts(const std::string& hosts, const std::string& hostfile);
// How they are reached: `shell` is what --ssh says, if anything.
Result<launch::SshOptions> way_to(const launch::HostList& hosts, const std::string& shell);
// The secret of what is started there, as a text for TUTTI_SECRET: of the file, of the environment, or a new one.
// Empty: `insecure`.
Result<std::string> secret_text(const std::string& secret_file, bool insecure);

// The hosts that --hosts or --hostfile names, or a job script of PBS; none: the job is not started over ssh. kUsage:
// both are given, -n contradicts the counts, or an option that makes no sense together with them.
Result<std::optional<launch::HostList>> hosts_of(const RunTexts& texts,
                                                 const std::optional<rendezvous::Allocation>& allocation);

// `arguments` of tutti run without the options that only this end takes, and without the program (the last
// `program_words`).
std::vector<std::string> options_for_hosts(const std::vector<std::string>& arguments, std::size_t program_words);

// Runs the job there; `rest` is the program and its arguments, perhaps after "--".
Result<int> run_on_hosts(const launch::HostList& hosts, const RunTexts& texts, const launch::JobOptions& job,
                         const std::vector<std::string>& arguments, const std::vector<std::string>& rest);

}  // namespace tutti::cli
