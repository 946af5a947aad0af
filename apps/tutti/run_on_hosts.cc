// The launcher over there gets the options that were given here, as they were typed, but for those that only make sense
// at this end. So no option has to be known twice.
#include "apps/tutti/run_on_hosts.h"

#include <algorithm>
#include <filesystem>

#include "apps/options/command_line.h"
#include "apps/tutti/run_in_scheduler.h"
#include "tutti/base/env.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/rendezvous/job_secret.h"

namespace tutti::cli {
namespace {

constexpr std::uint64_t kMostOfAHostfile = 16 << 20;
constexpr std::uint64_t kMostOfASecret = 4096;
constexpr std::size_t kLettersOfAName = 8;

// Options of this end alone, each with a value.
constexpr const char* kOfThisEnd[] = {"-H", "--hosts",  "--hostfile",    "--ssh",
                                      "-x", "--export", "--secret-file", "--secret_file"};

// A variable of the job here goes along: ours and torchrun's options, but for those that name a rank or a secret.
bool goes_along(const std::string& name) {
  constexpr const char* kStays[] = {"TUTTI_STORE",      "TUTTI_SECRET", "TUTTI_SECRET_FILE", "TUTTI_SECRET_FD",
                                    "TUTTI_GENERATION", "TUTTI_JOB",    "TUTTI_INIT"};
  if (!name.starts_with("TUTTI_") && !name.starts_with("PET_")) return false;
  return std::none_of(std::begin(kStays), std::end(kStays), [&](const char* stays) { return name == stays; });
}

Result<std::map<std::string, std::string>> variables_of(const SshTexts& texts) {
  std::map<std::string, std::string> variables;
  const Environment mine = current_environment();
  for (const auto& [name, value] : mine)
    if (goes_along(name)) variables[name] = value;
  for (const std::string& text : texts.variables) {
    const auto equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (name.empty()) return usage("-x needs NAME or NAME=VALUE, not '" + text + "'");
    if (equals != std::string::npos) {
      variables[name] = text.substr(equals + 1);
    } else if (const auto at = mine.find(name); at != mine.end()) {
      variables[name] = at->second;
    } else {
      return usage("-x " + name + ": there is no such variable here", "give its value: -x " + name + "=VALUE");
    }
  }
  return variables;
}

}  // namespace

Result<std::optional<launch::HostList>> listed_hosts(const std::string& hosts, const std::string& hostfile) {
  if (!hosts.empty() && !hostfile.empty())
    return usage("--hosts and --hostfile are both given", "one of them names the hosts");
  if (!hosts.empty()) return std::optional(TUTTI_TRY(launch::parse_hosts(hosts)));
  if (hostfile.empty()) return std::optional<launch::HostList>();
  return std::optional(TUTTI_TRY(launch::parse_hostfile(TUTTI_TRY(read_file(hostfile, kMostOfAHostfile)), hostfile)));
}

Result<launch::SshOptions> way_to(const launch::HostList& hosts, const std::string& shell) {
  launch::SshOptions options{.hosts = hosts};
  for (const std::string& word : split(shell, ' '))
    if (!word.empty()) options.shell.push_back(word);
  std::error_code failed;
  options.self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return system_error(failed.value(), "could not find the path of tutti in /proc/self/exe");
  return options;
}

Result<std::string> secret_text(const std::string& secret_file, bool insecure) {
  if (insecure) return std::string();
  const std::string file = secret_file.empty() ? env("TUTTI_SECRET_FILE").value_or("") : secret_file;
  if (!file.empty()) {
    (void)TUTTI_TRY(rendezvous::secret_in(file));  // refuses what others may read
    return std::string(trim(TUTTI_TRY(read_file(file, kMostOfASecret))));
  }
  return env("TUTTI_SECRET").value_or(transport::random_secret_text());
}

Result<std::optional<launch::HostList>> hosts_of(const RunTexts& texts,
                                                 const std::optional<rendezvous::Allocation>& allocation) {
  const std::optional<launch::HostList> hosts = TUTTI_TRY(listed_hosts(texts.ssh.hosts, texts.ssh.hostfile));
  if (!hosts && allocation && allocation->others == rendezvous::Allocation::Others::kSsh &&
      starts_others(*allocation, texts)) {
    return std::optional(
        launch::HostList{allocation->hosts, texts.ranks.ranks.empty() ? allocation->ranks : std::vector<int>()});
  }
  if (!hosts) {
    for (const auto& [given, option] :
         {std::pair(!texts.ssh.shell.empty(), "--ssh"), {!texts.ssh.variables.empty(), "-x"}})
      if (given)
        return usage(std::string(option) + " is for hosts that are started over ssh",
                     "name them: --hosts a:8,b:2 (on this host ranks have the variables of this shell)");
    return hosts;
  }
  const std::string source = texts.ssh.hosts.empty() ? "--hostfile" : "--hosts";
  if (!hosts->ranks.empty() && !texts.ranks.ranks.empty())
    return usage(source + " gives the number of ranks of each host, and -n gives " + texts.ranks.ranks,
                 "one of them is enough");
  for (const auto& [given, option] : {std::pair(!texts.nodes.nodes.empty(), "--nnodes"),
                                      {!texts.nodes.node_rank.empty(), "--node-rank"},
                                      {texts.nodes.standalone, "--standalone"}})
    if (given) return usage(source + " names the nodes, and " + option + " is given as well", "leave one of them out");
  return hosts;
}

std::vector<std::string> options_for_hosts(const std::vector<std::string>& arguments, std::size_t program_words) {
  std::vector<std::string> options;
  const std::size_t count = arguments.size() - std::min(arguments.size(), program_words);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& word = arguments[i];
    const auto* const known =
        std::find_if(std::begin(kOfThisEnd), std::end(kOfThisEnd), [&](const std::string& option) {
          const bool is_short = option.size() == 2;  // -Ha:8 and --hosts=a:8 have their value with them
          return word == option || word.starts_with(is_short ? option : option + "=");
        });
    if (known == std::end(kOfThisEnd)) {
      options.push_back(word);
    } else if (word == *known) {
      ++i;
    }
  }
  return options;
}

Result<int> run_on_hosts(const launch::HostList& hosts, const RunTexts& texts, const launch::JobOptions& job,
                         const std::vector<std::string>& arguments, const std::vector<std::string>& rest) {
  if (!texts.ranks.input.empty() && texts.ranks.input != "none")
    return usage("--stdin " + texts.ranks.input + ": over ssh all ranks read /dev/null",
                 "ranks that need what you have in a pipe can read it from a file");
  launch::SshOptions options = TUTTI_TRY(way_to(hosts, texts.ssh.shell));
  std::error_code failed;
  options.folder = std::filesystem::current_path(failed);
  if (failed) return system_error(failed.value(), "could not find the folder that this is");
  options.variables = TUTTI_TRY(variables_of(texts.ssh));
  const std::string secret = TUTTI_TRY(secret_text(job.secret_file, job.insecure));
  if (!secret.empty()) options.variables["TUTTI_SECRET"] = secret;
  options.options = options_for_hosts(arguments, rest.size());
  if (job.job.empty()) {
    const std::vector<std::string> name = {"--job-id",
                                           "job-" + transport::random_secret_text().substr(0, kLettersOfAName)};
    options.options.insert(options.options.begin(), name.begin(), name.end());
  }
  options.program = rest;
  if (!options.program.empty() && options.program.front() == "--") options.program.erase(options.program.begin());
  options.log_dir = job.output.log_dir;
  options.json = job.output.json;
  options.master_address = job.master_address;
  options.iface = job.iface;
  options.patience = job.connect_timeout;
  return launch::run_over_ssh(options);
}

}  // namespace tutti::cli
