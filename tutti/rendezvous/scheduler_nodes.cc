// Two situations look alike and are not. In a job script (sbatch, qsub, bsub) the variables speak of all nodes, but
// only one process runs, on the first of them: the launcher has to start itself on the others. In a task that the
// scheduler started once on every node (srun, mpirun, an indexed Job) the others are there already, and this is one of
// them.
//
// And one mistake is common: to start the launcher as often as ranks are wanted, so that each would start that many
// again. The number of tasks on this node tells.
#include "tutti/rendezvous/scheduler_nodes.h"

#include <netdb.h>

#include <algorithm>

#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/rendezvous/schedulers.h"

namespace tutti::rendezvous {
namespace {

using MaybeAllocation = Result<std::optional<Allocation>>;

// The first of them that is set.
Result<std::optional<int>> number_of(const Environment& environment, std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    const auto text = lookup(environment, variable);
    if (!text) continue;
    const auto number = parse_int(*text);
    if (number && *number >= 0 && *number <= int(kMaxHosts)) return std::optional<int>(int(*number));
    return Error{.code = Code::kUsage,
                 .detail = std::string(variable) + " is '" + *text + "', which is not a count of a scheduler",
                 .hint = "unset it, or ignore the scheduler: --standalone"};
  }
  return std::optional<int>();
}

Error several_on_one_node(const std::string& starter, int tasks, const std::string& hint) {
  return Error{.code = Code::kUsage,
               .detail = starter + " started " + std::to_string(tasks) +
                         " of this launcher on this node, and each would start ranks of its own",
               .hint = hint + "; or, if it is meant so, --standalone"};
}

std::string short_name(const std::string& host) { return host.substr(0, host.find('.')); }

// Slurm's list of hosts in the first of these variables that is set.
Result<std::vector<std::string>> slurm_hosts(const Environment& environment,
                                             std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    const auto list = lookup(environment, variable);
    if (!list) continue;
    auto hosts = expand_hostlist(*list);
    if (hosts.ok()) return hosts;
    Error error = hosts.error();
    error.detail = std::string(variable) + ": " + error.detail;
    return error;
  }
  return std::vector<std::string>();
}

MaybeAllocation slurm_step(const Environment& environment, const std::string& job, const std::string& step) {
  const int tasks = TUTTI_TRY(number_of(environment, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"})).value_or(1);
  const int nodes = TUTTI_TRY(number_of(environment, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"})).value_or(1);
  const auto node = TUTTI_TRY(number_of(environment, {"SLURM_NODEID"}));
  if (tasks > nodes) {
    return several_on_one_node("srun", (tasks + nodes - 1) / nodes,
                               "one on each node is enough: srun --nodes " + std::to_string(nodes) + " --ntasks " +
                                   std::to_string(nodes) +
                                   " --ntasks-per-node 1 tutti run -n N ...; or let srun start the program itself, "
                                   "without tutti run");
  }
  if (nodes < 2 || !node) return std::optional<Allocation>();
  if (*node < 0 || *node >= nodes)
    return Error{.code = Code::kUsage,
                 .detail = "SLURM_NODEID is " + std::to_string(*node) + ", and the step has " + std::to_string(nodes) +
                           " nodes (SLURM_STEP_NUM_NODES, or SLURM_NNODES)",
                 .hint = "srun sets them, and numbers nodes from 0; --standalone ignores Slurm"};
  Allocation found{.scheduler = "Slurm", .nodes = nodes, .node = node, .job = "slurm-" + job + "." + step};
  found.hosts = TUTTI_TRY(slurm_hosts(environment, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}));
  if (int(found.hosts.size()) == nodes) found.first_host = found.hosts.front();
  return std::optional(found);
}

MaybeAllocation slurm_script(const Environment& environment, const std::string& job) {
  const int nodes = TUTTI_TRY(number_of(environment, {"SLURM_JOB_NUM_NODES", "SLURM_NNODES"})).value_or(1);
  Allocation found{.scheduler = "Slurm", .nodes = nodes, .job = "slurm-" + job, .others = Allocation::Others::kSrun};
  // Without --ntasks Slurm tells of as many tasks a node as there are processors, which nobody asked for.
  const auto tasks = lookup(environment, "SLURM_TASKS_PER_NODE");
  const auto asked_for = TUTTI_TRY(number_of(environment, {"SLURM_NTASKS", "SLURM_NPROCS"}));
  if (tasks && asked_for) {
    auto counts = expand_counts(*tasks);
    if (counts.ok() && int(counts->size()) == nodes) found.ranks = *std::move(counts);
  }
  if (nodes < 2 && found.ranks.empty()) return std::optional<Allocation>();
  found.hosts = TUTTI_TRY(slurm_hosts(environment, {"SLURM_JOB_NODELIST", "SLURM_NODELIST"}));
  return std::optional(found);
}

MaybeAllocation slurm(const Environment& environment) {
  const auto job = lookup(environment, "SLURM_JOB_ID");
  if (!job) return std::optional<Allocation>();
  if (const auto step = slurm_step_of(environment)) return slurm_step(environment, *job, *step);
  return slurm_script(environment, *job);
}

void add_slots(Allocation& found, const std::string& host, int slots) {
  const auto at = std::find(found.hosts.begin(), found.hosts.end(), host);
  if (at == found.hosts.end()) {
    found.hosts.push_back(host);
    found.ranks.push_back(slots);
  } else {
    found.ranks[std::size_t(at - found.hosts.begin())] += slots;
  }
}

MaybeAllocation pbs(const Environment& environment, const HostNames& names,
                    const std::function<Result<std::string>(const std::string&)>& read_file) {
  const auto path = lookup(environment, "PBS_NODEFILE");
  if (!path) return std::optional<Allocation>();
  Allocation found{.scheduler = "PBS", .job = "pbs-" + lookup(environment, "PBS_JOBID").value_or("job")};
  const std::string hint = "is this a shell of the job, on the host where it began? --standalone ignores PBS";
  const auto text = read_file(*path);
  if (!text.ok()) return Error{.code = Code::kUsage, .detail = "PBS_NODEFILE: " + text.error().detail, .hint = hint};
  for (const std::string& line : split(*text, '\n')) {
    const std::string host(trim(line));
    if (!host.empty()) add_slots(found, host, 1);
  }
  if (found.hosts.empty())
    return Error{.code = Code::kUsage, .detail = "PBS_NODEFILE is " + *path + ", which names no host", .hint = hint};
  found.nodes = int(found.hosts.size());
  found.first_host = found.hosts.front();
  // The script is task 1 of the first host; pbsdsh starts further ones. Some PBS write that in hexadecimal digits.
  if (const auto task = lookup(environment, "PBS_TASKNUM");
      !task || task->find_first_not_of('0') == std::string::npos || task->substr(task->find_first_not_of('0')) == "1") {
    found.others = Allocation::Others::kSsh;
    return std::optional(found);
  }
  const auto mine = std::find_if(found.hosts.begin(), found.hosts.end(),
                                 [&](const std::string& host) { return short_name(host) == short_name(names.host); });
  if (mine == found.hosts.end())
    return Error{.code = Code::kUsage,
                 .detail = "this host, " + names.host + ", is not in " + *path + " (PBS_NODEFILE)",
                 .hint = "say which node it is: --node-rank R"};
  found.node = int(mine - found.hosts.begin());
  return std::optional(found);
}

// A job of several hosts of which ranks use this one only.
Allocation unused_hosts(const std::string& scheduler, std::int64_t hosts, const std::string& source,
                        const std::string& why) {
  return {.scheduler = scheduler,
          .note = "this " + scheduler + " job has " + std::to_string(hosts) + " hosts (" + source + "), " + why +
                  ": ranks run on this host alone (--hosts names the hosts)"};
}

// LSF and SGE start a script on the first host of the job. `words`: hosts, each followed by its slots.
MaybeAllocation script_on_first_host(Allocation found, const std::string& source, const std::vector<std::string>& words,
                                     const HostNames& names) {
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const auto slots = i + 1 < words.size() ? parse_int(words[i + 1]) : std::nullopt;
    if (!slots || *slots < 0 || *slots > int(kMaxHosts))
      return Error{.code = Code::kUsage,
                   .detail = source + ": \"" + words[i] + "\" is followed by no number of slots",
                   .hint = "--standalone ignores " + found.scheduler};
    if (*slots > 0) add_slots(found, words[i], int(*slots));
  }
  // Elsewhere this may be a task of the job, and its script may run tutti as well.
  if (found.hosts.empty() || short_name(found.hosts.front()) != short_name(names.host)) {
    if (found.hosts.size() < 2) return std::optional<Allocation>();
    return std::optional(
        unused_hosts(found.scheduler, std::ssize(found.hosts), source,
                     "of which " + found.hosts.front() + " is the first and this host, " + names.host + ", is not"));
  }
  found.nodes = int(found.hosts.size());
  found.first_host = found.hosts.front();
  found.others = Allocation::Others::kSsh;
  return std::optional(std::move(found));
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (const std::string& word : split(text, ' '))
    if (!word.empty()) words.push_back(word);
  return words;
}

// "hostA 8 hostB 8"
MaybeAllocation lsf(const Environment& environment, const HostNames& names) {
  const auto job = lookup(environment, "LSB_JOBID"), hosts = lookup(environment, "LSB_MCPU_HOSTS");
  if (!job || !hosts) return std::optional<Allocation>();
  return script_on_first_host({.scheduler = "LSF", .job = "lsf-" + *job}, "LSB_MCPU_HOSTS", words_of(*hosts), names);
}

// A file with lines "hostA 8 queue@hostA <NULL>".
MaybeAllocation sge(const Environment& environment, const HostNames& names,
                    const std::function<Result<std::string>(const std::string&)>& read_file) {
  const auto job = lookup(environment, "JOB_ID"), path = lookup(environment, "PE_HOSTFILE");
  if (!job) return std::optional<Allocation>();
  if (!path) {
    const auto hosts = parse_int(lookup(environment, "NHOSTS").value_or(""));
    if (!hosts || *hosts < 2) return std::optional<Allocation>();
    return std::optional(unused_hosts("SGE", *hosts, "NHOSTS", "but PE_HOSTFILE, which names them, is not set"));
  }
  const auto text = read_file(*path);
  if (!text.ok())
    return Error{.code = Code::kUsage,
                 .detail = "PE_HOSTFILE: " + text.error().detail,
                 .hint = "is this a shell of the job, on the host where it began? --standalone ignores SGE"};
  std::vector<std::string> words;
  for (const std::string& line : split(*text, '\n')) {
    const auto of_line = words_of(line);
    words.insert(words.end(), of_line.begin(), of_line.begin() + std::min<std::ptrdiff_t>(2, std::ssize(of_line)));
  }
  return script_on_first_host({.scheduler = "SGE", .job = "sge-" + *job}, "PE_HOSTFILE", words, names);
}

MaybeAllocation mpi(const Environment& environment) {
  const auto facts = TUTTI_TRY(scheduler_of(environment));
  if (!facts || facts->starter == "srun" || facts->starter == "Kubernetes") return std::optional<Allocation>();
  const auto nodes = parse_int(*facts->world_size.value), node = parse_int(*facts->rank.value);
  const auto here = parse_int(facts->local_world_size.value.value_or(""));
  if (!nodes || !node || *nodes < 2) return std::optional<Allocation>();
  if (here && *here > 1) {
    return several_on_one_node(facts->starter, int(*here),
                               "one on each node is enough: " + facts->starter +
                                   " --map-by ppr:1:node tutti run -n N "
                                   "...; or let " +
                                   facts->starter + " start the program itself, without tutti run");
  }
  return std::optional(Allocation{.scheduler = facts->starter,
                                  .nodes = int(*nodes),
                                  .node = int(*node),
                                  .first_host = host_of_mpirun(environment),
                                  .job = facts->job.empty() ? std::string() : facts->starter + "-" + facts->job});
}

// The pods of an indexed Job are called JOB-INDEX, and under a headless service each finds the others as
// JOB-INDEX.SERVICE...: its own full name tells how.
MaybeAllocation kubernetes(const Environment& environment, const HostNames& names) {
  if (!lookup(environment, "KUBERNETES_SERVICE_HOST")) return std::optional<Allocation>();
  const auto index = TUTTI_TRY(number_of(environment, {"JOB_COMPLETION_INDEX"}));
  if (!index) return std::optional<Allocation>();
  Allocation found{.scheduler = "Kubernetes", .node = index};
  const std::string ending = "-" + std::to_string(*index);
  if (names.host.ends_with(ending)) {
    const std::string job = names.host.substr(0, names.host.size() - ending.size());
    found.job = "kubernetes-" + job;
    if (names.canonical.starts_with(names.host + "."))
      found.first_host = job + "-0" + names.canonical.substr(names.host.size());
  }
  return std::optional(found);
}

}  // namespace

HostNames host_names() {
  HostNames names{.host = host_name(), .canonical = {}};
  addrinfo wanted{};
  wanted.ai_flags = AI_CANONNAME;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(names.host.c_str(), nullptr, &wanted, &found) == 0) {
    if (found->ai_canonname) names.canonical = found->ai_canonname;
    freeaddrinfo(found);
  }
  return names;
}

std::string host_of_mpirun(const Environment& environment) {
  // "1254424576.0;tcp://192.0.2.2,10.0.0.5:49975;tcp6://..."
  const auto uri = lookup(environment, "OMPI_MCA_orte_hnp_uri");
  const std::size_t begin = uri ? uri->find("tcp://") : std::string::npos;
  if (begin == std::string::npos) return {};
  const std::string rest = uri->substr(begin + 6);
  return rest.substr(0, rest.find_first_of(",:;"));
}

MaybeAllocation allocation_of(const Environment& environment, const HostNames& names,
                              const std::function<Result<std::string>(const std::string&)>& read_file) {
  if (lookup(environment, "TUTTI_STORE")) return std::optional<Allocation>();
  // mpirun inside Slurm or PBS is the inner one.
  if (auto found = TUTTI_TRY(mpi(environment))) return std::optional(*std::move(found));
  if (auto found = TUTTI_TRY(slurm(environment))) return std::optional(*std::move(found));
  if (auto found = TUTTI_TRY(pbs(environment, names, read_file))) return std::optional(*std::move(found));
  if (auto found = TUTTI_TRY(lsf(environment, names))) return std::optional(*std::move(found));
  if (auto found = TUTTI_TRY(sge(environment, names, read_file))) return std::optional(*std::move(found));
  return kubernetes(environment, names);
}

}  // namespace tutti::rendezvous
