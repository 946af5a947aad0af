// One function for each part of a job; the results go into Prepared. The order is that of likely mistakes: the program
// first, then the number of ranks, then where the nodes find each other.
#include "tutti/launch/prepare.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <numeric>
#include <thread>

#include "tutti/base/deadline.h"
#include "tutti/base/env.h"
#include "tutti/base/log.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/launch/affinity/gpu_nodes.h"
#include "tutti/launch/affinity/rank_table.h"
#include "tutti/launch/membership/addresses.h"
#include "tutti/launch/process.h"
#include "tutti/launch/tuning.h"
#include "tutti/rendezvous/job_secret.h"
#include "tutti/rendezvous/reach_store.h"
#include "tutti/trace/flight/dump.h"
#include "tutti/transport/address.h"

namespace tutti::launch {
namespace {

constexpr const char* kJobLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
constexpr std::size_t kLongestJob = 200;
constexpr std::size_t kLettersOfRun = 16;
constexpr int kMasterPort = 29500;                                 // torchrun's
constexpr auto kShortestSilence = std::chrono::milliseconds(500);  // a busy node is sometimes silent for that long

constexpr Duration kLongestUnnamed = std::chrono::minutes(1);  // until a host knows the address of its own name
constexpr Duration kNameAgain = std::chrono::milliseconds(500);

bool is_one_node(const NodesOptions& nodes) { return nodes.nodes == 1 && traits_of(nodes.backend).numbered; }

// "20261120-210405-3fa9c1": unique, and sorts by time in a log folder.
std::string new_job_id() {
  unsigned int noise = 0;
  if (getrandom(&noise, sizeof noise, 0) != sizeof noise) noise = unsigned(now().time_since_epoch().count());
  const std::time_t time = std::time(nullptr);
  std::tm local{};
  localtime_r(&time, &local);
  char text[64];
  const std::size_t length = std::strftime(text, sizeof text, "%Y%m%d-%H%M%S-", &local);
  std::snprintf(text + length, sizeof text - length, "%06x", noise & 0xffffff);
  return text;
}

// A port that the program can bind on node 0: the given one, if it is free, or any.
Result<int> port_of_program(const std::string& host, std::optional<int> wanted) {
  auto port = free_port(host, wanted.value_or(0));
  if (port.ok() || !wanted || port.error().code != Code::kAddressInUse) return port;
  Error error = port.error();
  error.hint =
      "choose another --master-port, or leave it out on one node; or is this a second --node-rank 0 on this host?";
  return error;
}

// The user's secret, or a random one; on several nodes the user must give one.
Result<transport::Secret> secret_of(const JobOptions& options, bool one_node) {
  if (options.insecure && !options.secret_file.empty())
    return Error{.code = Code::kUsage,
                 .detail = "--insecure means no secret, and --secret-file " + options.secret_file + " gives one",
                 .hint = "leave one of them out"};
  if (options.insecure) return transport::Secret::none();
  if (!options.secret_file.empty()) return rendezvous::secret_in(options.secret_file);
  if (const auto file = env("TUTTI_SECRET_FILE")) return rendezvous::secret_in(*file);
  if (const auto text = env("TUTTI_SECRET")) return transport::Secret::from_text(*text);
  if (TUTTI_TRY(env_flag("TUTTI_INSECURE", false))) return transport::Secret::none();
  if (one_node) return transport::Secret::random();
  return Error{
      .code = Code::kUsage,
      .detail =
          "a job on several nodes needs a secret that all of them know; without one, anybody who reaches its port can "
          "join it",
      .hint =
          "make one (umask 077; openssl rand -hex 32 > secret), copy it to all nodes, and give --secret-file secret; "
          "or do without one: --insecure"};
}

// serving_addresses(), which in a pod may not know the pod's own name for its first seconds.
Result<std::vector<transport::Address>> own_addresses(const transport::Address& wanted,
                                                      rendezvous::Identity::OneHost one_host, Duration patience) {
  const Deadline deadline = Deadline::after(std::min(patience, kLongestUnnamed));
  for (bool told = false;; told = true) {
    auto found = rendezvous::serving_addresses(wanted, "--master-addr", one_host);
    const bool unnamed = !found.ok() && found.error().code == Code::kUnreachable && found.error().errno_value == 0;
    if (!unnamed || deadline.expired()) return found;
    if (!told) log::warn(found.error().detail + "; trying again for " + seconds_text(to_seconds(deadline.remaining())));
    std::this_thread::sleep_for(std::min(kNameAgain, deadline.remaining()));
  }
}

// Where node 0 (or the node with that address) serves and the others connect.
Result<transport::Address> store_address(const JobOptions& options, const std::string& master_address, int nodes,
                                         int master_port) {
  const BackendTraits& backend = traits_of(options.rendezvous.backend);
  if (!backend.node_serves) return transport::Address{};
  if (!backend.numbered) return transport::parse_address(options.rendezvous.endpoint);
  if (nodes == 1) return transport::Address{.host = "127.0.0.1", .port = std::uint16_t(options.store_port.value_or(0))};
  const int port = options.store_port.value_or(master_port < 65535 ? master_port + 1 : master_port - 1);
  const transport::Address wanted{.host = master_address, .port = std::uint16_t(port)};
  if (options.node != 0) return wanted;
  // A literal loopback address is intended: several agents on one machine. A name that resolves to one is a mistake.
  const bool meant = rendezvous::is_loopback_text(wanted);
  const auto found = TUTTI_TRY(
      own_addresses(wanted, meant ? rendezvous::Identity::OneHost::kUnknown : rendezvous::Identity::OneHost::kNo,
                    options.connect_timeout));
  return found.front();
}

// Fail now, not after days of training, if the report cannot be written.
Status check_report_file(const std::string& file) {
  if (file.empty()) return {};
  std::error_code ignored;
  const std::filesystem::path path = file;
  const std::filesystem::file_type type = std::filesystem::status(path, ignored).type();
  if (type == std::filesystem::file_type::directory || type == std::filesystem::file_type::fifo)
    return Error{.code = Code::kUsage,
                 .detail = "--report " + file + " is a " +
                           (type == std::filesystem::file_type::fifo ? "pipe, which may have no reader" : "folder"),
                 .hint = "it needs a file's name"};
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  if (!std::filesystem::is_directory(folder, ignored))
    return Error{.code = Code::kUsage,
                 .detail = "--report " + file + ": there is no folder " + folder + " here",
                 .hint = "make it, on every node, or choose another place"};
  const bool exists = type != std::filesystem::file_type::not_found;
  if (::access(exists ? file.c_str() : folder.c_str(), W_OK) == 0) return {};
  return Error{.code = Code::kUsage,
               .detail = "--report " + file + " cannot be written: " + std::strerror(errno),
               .hint = "choose another place"};
}

// Whether the options speak of GPUs. On a host with GPUs ranks may train on the CPU, and then want all of its cores.
bool asks_for_gpus(const JobOptions& options) {
  const ShareOptions& shares = options.shares;
  return options.ranks == "gpu" || options.ranks == "auto" || !shares.devices.empty() || shares.one_device_each ||
         shares.virtual_local_rank || shares.near_gpus;
}

// The NUMA node of each rank's GPU; empty if --bind has no regard to GPUs.
Result<std::vector<int>> find_near_nodes(const JobOptions& options, const Topology& topology,
                                         const std::vector<std::string>& gpus, int ranks) {
  if (options.shares.bind == Bind::kNone || !asks_for_gpus(options)) return std::vector<int>();
  const auto chosen = TUTTI_TRY(chosen_devices(options.shares.devices, gpus));
  const auto near = nodes_of_ranks(chosen, numa_nodes_of_gpus(chosen), topology, ranks);
  const bool has_several_nodes = std::any_of(topology.begin(), topology.end(),
                                             [&](const Core& core) { return core.numa != topology.front().numa; });
  if (near.empty() && !chosen.empty() && has_several_nodes)
    log::warn(
        "--bind: the NUMA node of a GPU of this job is not known, or no core of it may be used here; ranks are "
        "bound without regard to GPUs");
  return near;
}

// The share of the machine for each rank of this node.
Status share_machine(const JobOptions& options, const std::vector<std::string>& gpus, MachineCounts machine, int ranks,
                     AgentSpec& spec) {
  const Bind bind = options.shares.bind;
  Topology topology;
  if (bind != Bind::kNone) {
    topology = TUTTI_TRY(options.topology ? options.topology(allowed_cores()) : topology_from_sys(allowed_cores()));
  }
  const std::vector<int> near = TUTTI_TRY(find_near_nodes(options, topology, gpus, ranks));
  spec.shares = TUTTI_TRY(share_out(options.shares, topology, gpus, ranks, near));
  spec.cores_of_a_rank =
      bind == Bind::kNone ? std::max(1, machine.cores / ranks) : cores_of_a_rank(topology, bind, ranks, near);
  spec.pass_local_rank = options.shares.pass_local_rank;
  if (bind == Bind::kCore && ranks > int(topology.size()))
    log::warn("--bind core: " + std::to_string(ranks) + " ranks share " + std::to_string(topology.size()) +
              (topology.size() == 1 ? " core" : " cores") +
              " of this host, and each runs at a part of its speed; start fewer ranks (-n), let this process have more "
              "cores (taskset, cpuset, the scheduler's limits), or leave --bind out");
  return {};
}

Status prepare_program(const JobOptions& options, AgentSpec& spec) {
  spec.program = TUTTI_TRY(find_program(options.program, env("PATH").value_or("")));
  spec.arguments = options.arguments;
  spec.arguments.insert(spec.arguments.begin(), options.program);
  spec.input_rank = options.input_rank.value_or(-1);
  return {};
}

// The user's variables win, and may have been set for another machine.
void warn_of_costly_variables(int cores, bool tune) {
  const std::string kernels = costly_kernels(env, cpu_features()), threads = costly_threads(env, cores);
  if (kernels.empty() && threads.empty()) return;
  log::warn(kernels + (kernels.empty() || threads.empty() ? "" : "; ") + threads +
            (tune ? "; tutti run chooses the value of a variable that is not set" : ""));
}

// By default mpirun binds a process to a core, and Slurm gives a task one CPU.
void warn_of_few_cores(int ranks, int cores) {
  const bool of_mpirun = env("OMPI_COMM_WORLD_SIZE").has_value();
  if (ranks <= cores || cores >= int(::sysconf(_SC_NPROCESSORS_ONLN)) || !(of_mpirun || env("SLURM_JOB_ID"))) return;
  log::warn(std::to_string(ranks) + " ranks share " + std::to_string(cores) +
            (cores == 1 ? " core, all that " : " cores, all that ") +
            (of_mpirun ? "mpirun gave this process: add --bind-to none to mpirun"
                       : "Slurm gave this job here: ask it for more with --cpus-per-task or --exclusive"));
}

Status prepare_ranks(const JobOptions& options, Prepared& job) {
  const std::vector<std::string> gpus = visible_gpus(current_environment());
  const MachineCounts machine{.cores = usable_cores(),
                              .gpus = int(TUTTI_TRY(chosen_devices(options.shares.devices, gpus)).size())};
  NodesOptions& nodes = job.nodes;
  nodes.counts = TUTTI_TRY(parse_rank_counts(options.ranks, options.nodes, options.node, machine));
  TUTTI_TRY(share_machine(options, gpus, machine, nodes.counts.here, job.agent));
  if (options.node <= 0) warn_of_costly_variables(job.agent.cores_of_a_rank, options.tune);
  warn_of_few_cores(nodes.counts.here, machine.cores);
  nodes.nodes = options.nodes.value_or(std::max(1, int(nodes.counts.all.size())));
  nodes.node = options.node;
  nodes.min_nodes = options.rendezvous.min.value_or(nodes.nodes);
  nodes.failover = options.rendezvous.failover;
  const bool only_a_wish = !traits_of(options.rendezvous.backend).numbered;
  if (only_a_wish || options.node < nodes.nodes) return {};
  return Error{.code = Code::kUsage,
               .detail = "--node-rank " + std::to_string(options.node) + " is not one of " +
                         (nodes.nodes == 1 ? "1 node" : "the " + std::to_string(nodes.nodes) + " nodes of --nnodes"),
               .hint = "nodes are numbered from 0; --nnodes says how many there are"};
}

// The address of node 0 for the program; may be empty if nodes have no numbers.
Result<std::string> master_address(const JobOptions& options, const NodesOptions& nodes) {
  std::string address = options.master_address;
  if (!options.iface.empty()) {
    const std::string host = TUTTI_TRY(transport::address_at(options.iface));
    if (address.empty() && options.node == 0) address = host;
  } else if (const auto iface = env("TUTTI_IFACE")) {  // checked here once, or each rank would report it
    if (const auto host = transport::address_at(*iface); !host.ok()) {
      Error error = host.error();
      error.detail += " (from TUTTI_IFACE)";
      return error;
    }
  }
  if (!traits_of(nodes.backend).numbered || !address.empty()) return address;
  if (nodes.nodes == 1) return std::string("127.0.0.1");
  const std::string range = nodes.min_nodes < nodes.nodes ? std::to_string(nodes.min_nodes) + ":" : "";
  return Error{.code = Code::kUsage,
               .detail = (options.nodes ? "--nnodes " + range + std::to_string(nodes.nodes) : "-n " + options.ranks) +
                         " needs --master-addr",
               .hint =
                   "the address of node 0, as all nodes see it; or nodes without numbers: --rdzv-backend elastic "
                   "--rdzv-endpoint HOST"};
}

Result<EtcdAccess> etcd_access(const JobOptions& options) {
  EtcdAccess access = options.rendezvous.etcd;
  for (const auto& [key, file] : {std::pair("cacert", &access.ca_file), std::pair("ssl_cert", &access.certificate_file),
                                  std::pair("ssl_cert_key", &access.key_file)}) {
    if (!file->empty() && ::access(file->c_str(), R_OK) != 0)
      return system_error(errno, "--rdzv-conf " + std::string(key) + "=" + *file + " cannot be read");
  }
  if (access.user.empty()) return access;
  access.password = env("TUTTI_ETCD_PASSWORD").value_or("");
  if (!access.password.empty()) return access;
  return Error{.code = Code::kUsage,
               .detail = "--rdzv-conf user=" + access.user + " needs a password",
               .hint = "set TUTTI_ETCD_PASSWORD on every node"};
}

// Where the nodes find each other, and where their program does.
Status prepare_rendezvous(const JobOptions& options, NodesOptions& nodes) {
  nodes.backend = options.rendezvous.backend;
  nodes.hosts = options.rendezvous.is_host;
  nodes.etcd = options.rendezvous.endpoint;
  nodes.etcd_access = TUTTI_TRY(etcd_access(options));
  nodes.last_call = options.rendezvous.last_call;
  nodes.timeout = options.rendezvous.join_timeout.value_or(options.connect_timeout);
  nodes.lost_after = options.rendezvous.lost_after.value_or(options.node_timeout);
  if (nodes.lost_after < kShortestSilence)
    return Error{.code = Code::kUsage,
                 .detail = "a node that is silent for " + seconds_text(to_seconds(nodes.lost_after)) +
                           " may still be alive (--node-timeout, or keep_alive_interval of --rdzv-conf)",
                 .hint = "at least " + seconds_text(to_seconds(kShortestSilence)) + "; the default is 2.5s"};
  nodes.master_address = TUTTI_TRY(master_address(options, nodes));
  const bool by_number = traits_of(nodes.backend).numbered;
  const bool any_port = is_one_node(nodes) || !by_number;
  const std::optional<int> wanted_port = any_port || options.master_port ? options.master_port : kMasterPort;
  nodes.master_port = wanted_port.value_or(0);
  if (options.store_port && wanted_port == options.store_port) {
    return Error{
        .code = Code::kUsage,
        .detail = "--store-port and the master port are both " + std::to_string(*wanted_port),
        .hint = "the master port belongs to the program; give the store another one, or leave --store-port out"};
  }
  nodes.store = TUTTI_TRY(store_address(options, nodes.master_address, nodes.nodes, nodes.master_port));
  if (by_number && nodes.nodes > 1 && rendezvous::is_loopback_text(nodes.store))
    log::info("--master-addr " + nodes.master_address +
              " is each host's own loopback address: only nodes on this host meet there");
  if (options.node != 0 || !by_number) return {};
  std::string host = nodes.store.host;
  if (is_one_node(nodes)) {
    const transport::Address wanted{.host = nodes.master_address};
    host = TUTTI_TRY(rendezvous::serving_addresses(wanted, "--master-addr", rendezvous::Identity::OneHost::kYes))
               .front()
               .host;
  }
  nodes.master_port = TUTTI_TRY(port_of_program(host, wanted_port));
  return {};
}

Result<std::string> name_of_job(const JobOptions& options, const NodesOptions& nodes) {
  if (options.job.find_first_not_of(kJobLetters) != std::string::npos || options.job.starts_with('.') ||
      options.job.size() > kLongestJob) {
    return Error{.code = Code::kUsage,
                 .detail = "--job-id '" + options.job + "' is not a valid job name",
                 .hint =
                     "letters, digits, '.', '_' and '-', at most 200, not beginning with '.': it also names a "
                     "folder of --log-dir"};
  }
  if (!options.job.empty()) return options.job;
  if (is_one_node(nodes)) return new_job_id();
  const BackendTraits& backend = traits_of(nodes.backend);
  if (backend.node_serves) return "tutti-" + std::to_string(backend.numbered ? nodes.master_port : nodes.store.port);
  return Error{.code = Code::kUsage,
               .detail = "--rdzv-backend etcd needs --rdzv-id",
               .hint = "a name that no other job has there, the same on all nodes"};
}

Status prepare_credentials(const JobOptions& options, Prepared& job) {
  job.nodes.credentials =
      transport::Credentials{.secret = TUTTI_TRY(secret_of(options, job.nodes.nodes == 1)), .job = job.agent.job};
  job.agent.credentials = job.nodes.credentials;
  if (const std::string warning = job.nodes.credentials.secret.warning(); options.node == 0 && !warning.empty())
    log::warn(warning);
  return {};
}

// The first local rank from `first` on with an entry of its own; -1: none.
int named_from(const StreamsByRank& streams, int first) {
  for (int rank = first; rank < kMostRanksPerNode; ++rank)
    if (streams.of(rank) != streams.of(kMostRanksPerNode)) return rank;
  return -1;
}

// torchrun's --tee and --redirects write files even without a log folder.
Result<std::string> made_log_folder() {
  std::string pattern = env("TMPDIR").value_or("/tmp") + "/tutti-logs_XXXXXX";
  if (!mkdtemp(pattern.data()))
    return system_error(errno, "could not make a folder for the logs, " + pattern, "--log-dir names another one");
  log::info("the logs of --tee and --redirects are in " + pattern + " (--log-dir chooses a folder)");
  return pattern;
}

Status prepare_output(const JobOptions& options, AgentSpec& spec) {
  TUTTI_TRY(check_report_file(options.report_file));
  if (spec.output.log_dir.empty() && (spec.output.redirects.any() || spec.output.tee.any()))
    spec.output.log_dir = TUTTI_TRY(made_log_folder());
  if (!spec.output.log_dir.empty())  // also for a rank that changes its working directory
    spec.output.log_dir = std::filesystem::absolute(spec.output.log_dir).string();
  spec.flight_folder =
      env("TUTTI_FLIGHT_DIR")
          .value_or(spec.output.log_dir.empty() ? trace::default_flight_folder(spec.job) : std::string());
  return {};
}

}  // namespace

Result<Prepared> prepare(const JobOptions& options) {
  Prepared job;
  AgentSpec& spec = job.agent;
  static_cast<AgentOptions&>(spec) = options;
  NodesOptions& nodes = job.nodes;
  if (options.node <= 0)  // once for all nodes
    for (const std::string& misspelt : misspelt_variables(current_environment())) log::warn(misspelt);
  TUTTI_TRY(prepare_program(options, spec));
  TUTTI_TRY(prepare_ranks(options, job));
  TUTTI_TRY(prepare_rendezvous(options, nodes));
  spec.job = TUTTI_TRY(name_of_job(options, nodes));
  TUTTI_TRY(prepare_credentials(options, job));
  if (int(nodes.counts.all.size()) == nodes.nodes) TUTTI_TRY(check_ranks(spec, nodes.counts.all));
  TUTTI_TRY(prepare_output(options, spec));
  nodes.say = [](const std::string& text) { log::info(text); };
  nodes.host = spec.host = host_name();
  NodeInfo info{.shares = {}, .run = transport::random_secret_text().substr(0, kLettersOfRun)};
  for (const Share& share : spec.shares) info.shares.push_back(share.text());
  nodes.about = encode(info);
  nodes.judge = [policy = options.restarts](const std::vector<Fault>& past, const Fault& fault) {
    return judge(policy, past, fault);
  };
  spec.max_restarts = options.restarts.most;
  return job;
}

Status check_ranks(const AgentSpec& agent, const std::vector<int>& ranks_of_nodes) {
  const int world_size = std::accumulate(ranks_of_nodes.begin(), ranks_of_nodes.end(), 0);
  const int most_here = *std::max_element(ranks_of_nodes.begin(), ranks_of_nodes.end());
  const auto missing = [](const char* option, const std::string& rank, const char* who, int ranks) {
    return Error{.code = Code::kUsage,
                 .detail = std::string(option) + " names " + rank + ", but " + who + " " + std::to_string(ranks) +
                           (ranks == 1 ? " rank" : " ranks"),
                 .hint = "ranks are numbered from 0"};
  };
  const OutputOptions& output = agent.output;
  const std::pair<const char*, int> ranks[] = {
      {"--only-ranks", output.only_ranks.empty() ? -1 : *output.only_ranks.rbegin()},
      {"--quiet-ranks", output.quiet_ranks.empty() ? -1 : *output.quiet_ranks.rbegin()},
      {"--stdin", agent.input_rank}};
  for (const auto& [option, rank] : ranks)
    if (rank >= world_size) return missing(option, "rank " + std::to_string(rank), "the job has", world_size);
  // A local rank that this node does not have may be on another node, unless no node has that many.
  const std::pair<const char*, int> local_ranks[] = {
      {"--local-ranks-filter", output.only_local_ranks.empty() ? -1 : *output.only_local_ranks.rbegin()},
      {"--redirects", named_from(output.redirects, most_here)},
      {"--tee", named_from(output.tee, most_here)}};
  for (const auto& [option, rank] : local_ranks)
    if (rank >= most_here)
      return missing(option, "local rank " + std::to_string(rank),
                     ranks_of_nodes.size() == 1 ? "the job has" : "no node has more than", most_here);
  return {};
}

}  // namespace tutti::launch
