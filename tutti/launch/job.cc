// The order matters: what can be wrong on the command line is checked before anything is started, the keeper is forked
// before there is a thread, and only then is the store served.
#include "tutti/launch/job.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <numeric>

#include "tutti/base/cores.h"
#include "tutti/base/env.h"
#include "tutti/base/gpus.h"
#include "tutti/base/log.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/launch/agent.h"
#include "tutti/launch/keeper.h"
#include "tutti/launch/nodes.h"
#include "tutti/launch/places/rank_table.h"
#include "tutti/launch/process.h"
#include "tutti/launch/program.h"
#include "tutti/launch/tuning.h"
#include "tutti/rendezvous/serving.h"
#include "tutti/trace/flight_dump.h"
#include "tutti/transport/interface.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

constexpr const char* kJobLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

// "20261120-210405-3fa9c1": sorts by time in a log folder, and no two are alike.
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

// A port that the program can bind: the one given, if it is free, or any. It is closed again at once.
Result<int> free_port(const std::string& host, std::optional<int> wanted) {
  const auto listener = listen(Address{.host = host, .port = std::uint16_t(wanted.value_or(0))});
  if (listener.ok()) return int(listener->address.port);
  Error error = listener.error();
  if (wanted && error.code == Code::kAddressInUse)
    error.hint = "choose another --master-port, or leave it out on one node";
  return error;
}

// A folder for the error files of a job without --log-dir. It is the keeper's, which outlives an agent that is killed.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = env("TMPDIR").value_or("/tmp") + "/tutti_XXXXXX";
    if (mkdtemp(pattern.data())) path_ = pattern;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }  // empty: none could be made

 private:
  std::string path_;
};

Result<Secret> secret_from(const std::string& path) {
  auto secret = Secret::from_file(path);
  if (secret.ok()) return secret;
  Error error = secret.error();
  error.code = Code::kUsage;
  return error;
}

// The secret that the user gave, or one that nobody knows; on several nodes it has to be given.
Result<Secret> secret_of(const JobOptions& options, bool one_node) {
  if (options.insecure) return Secret::none();
  if (!options.secret_file.empty()) return secret_from(options.secret_file);
  if (const auto file = env("TUTTI_SECRET_FILE")) return secret_from(*file);
  if (const auto text = env("TUTTI_SECRET")) return Secret::from_text(*text);
  if (TUTTI_TRY(env_flag("TUTTI_INSECURE", false))) return Secret::none();
  if (one_node) return Secret::random();
  return Error{
      .code = Code::kUsage,
      .detail =
          "a job on several nodes needs a secret that all of them know, or whoever reaches its port could join it",
      .hint =
          "make one (umask 077; openssl rand -hex 32 > secret), copy it to all nodes, and give --secret-file secret; "
          "or accept "
          "strangers with --insecure"};
}

// The secret as a descriptor for the workers: memory that nobody can change, in no file and on no command line.
Result<Fd> secret_descriptor(const Secret& secret) {
  Fd fd(memfd_create("tutti-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto bytes = secret.bytes();
  if (!fd || write(fd.get(), bytes.data(), bytes.size()) != ssize_t(bytes.size()) ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    return system_error(errno, "could not make the descriptor with the job's secret");
  }
  return fd;
}

// Where node 0 serves, or whoever has that address, and the others dial.
Result<Address> store_address(const JobOptions& options, const std::string& master_address, int nodes,
                              int master_port) {
  if (options.rendezvous.backend == RendezvousBackend::kElastic) return parse_address(options.rendezvous.endpoint);
  if (options.rendezvous.backend == RendezvousBackend::kEtcd) return Address{};
  if (nodes == 1) return Address{.host = "127.0.0.1", .port = std::uint16_t(options.store_port.value_or(0))};
  const int port = options.store_port.value_or(master_port < 65535 ? master_port + 1 : master_port - 1);
  const Address wanted{.host = master_address, .port = std::uint16_t(port)};
  if (options.node != 0) return wanted;
  // A loopback address that was written out is meant: several agents on one machine. A name that turns out to be one is
  // a mistake.
  const bool meant = master_address == "localhost" || is_loopback(wanted);
  const auto found = TUTTI_TRY(
      serving_addresses(wanted, "--master-addr", meant ? Identity::OneHost::kUnknown : Identity::OneHost::kNo));
  return found.front();
}

// A rank that is to be shown, or not, and does not exist is a mistake: the console would stay empty.
Status check_shown(const OutputOptions& output, int world_size) {
  for (const auto* ranks : {&output.only_ranks, &output.quiet_ranks}) {
    if (ranks->empty() || *ranks->rbegin() < world_size) continue;
    return Error{.code = Code::kUsage,
                 .detail = std::string(ranks == &output.only_ranks ? "--only-ranks" : "--quiet-ranks") +
                           " names rank " + std::to_string(*ranks->rbegin()) + ", but the job has " +
                           std::to_string(world_size) + (world_size == 1 ? " rank" : " ranks"),
                 .hint = "ranks are numbered from 0"};
  }
  return {};
}

// After days of training is no time to learn that the report has no place.
Status check_report_file(const std::string& file) {
  if (file.empty()) return {};
  std::error_code ignored;
  const std::filesystem::path path = file;
  if (std::filesystem::is_directory(path, ignored))
    return Error{.code = Code::kUsage, .detail = "--report " + file + " is a folder", .hint = "it needs a file's name"};
  if (!path.has_parent_path() || std::filesystem::is_directory(path.parent_path(), ignored)) return {};
  return Error{.code = Code::kUsage,
               .detail = "--report " + file + ": there is no folder " + path.parent_path().string() + " here",
               .hint = "make it, on every node, or choose another place"};
}

// What each rank of this node gets of the machine.
Status share_machine(const JobOptions& options, const std::vector<std::string>& gpus, MachineCounts machine, int ranks,
                     AgentSpec& spec) {
  const Bind bind = options.shares.bind;
  Topology topology;
  if (bind != Bind::kNone) {
    topology = TUTTI_TRY(options.topology ? options.topology(allowed_cores()) : topology_from_sys(allowed_cores()));
  }
  spec.shares = TUTTI_TRY(share_out(options.shares, topology, gpus, ranks));
  spec.cores_of_a_rank =
      bind == Bind::kNone ? std::max(1, machine.cores / ranks) : cores_of_a_rank(topology, bind, ranks);
  spec.pass_local_rank = options.shares.pass_local_rank;
  spec.role = options.role;
  return {};
}

// The job as the agent sees it, all checked that can be checked without starting anything.
struct Prepared {
  AgentSpec agent;
  NodesOptions nodes;
};

Result<Prepared> prepare(const JobOptions& options) {
  Prepared job;
  AgentSpec& spec = job.agent;
  NodesOptions& nodes = job.nodes;
  spec.program = TUTTI_TRY(find_program(options.program, env("PATH").value_or("")));
  TUTTI_TRY(check_report_file(options.report_file));
  spec.arguments = options.arguments;
  spec.arguments.insert(spec.arguments.begin(), options.program);
  const std::vector<std::string> gpus = visible_gpus(current_environment());
  const MachineCounts machine{.cores = usable_cores(),
                              .gpus = int(TUTTI_TRY(chosen_devices(options.shares.devices, gpus)).size())};
  nodes.counts = TUTTI_TRY(parse_rank_counts(options.ranks, options.nodes, options.node, machine));
  TUTTI_TRY(share_machine(options, gpus, machine, nodes.counts.here, spec));
  nodes.nodes = options.nodes.value_or(std::max(1, int(nodes.counts.all.size())));
  nodes.node = options.node;
  nodes.min_nodes = options.rendezvous.min.value_or(nodes.nodes);
  nodes.backend = options.rendezvous.backend;
  nodes.hosts = options.rendezvous.is_host;
  nodes.etcd = options.rendezvous.endpoint;
  nodes.last_call = options.rendezvous.last_call;
  const bool by_number = nodes.backend == RendezvousBackend::kStatic;
  const bool one_node = nodes.nodes == 1 && by_number;
  if (options.node >= nodes.nodes) {
    return Error{.code = Code::kUsage,
                 .detail = "--node-rank " + std::to_string(options.node) + " is not one of " +
                           std::to_string(nodes.nodes) + (one_node ? " node" : " nodes"),
                 .hint = "nodes are numbered from 0; --nnodes says how many there are"};
  }
  nodes.master_address = options.master_address;
  if (!options.iface.empty()) {
    const std::string host = TUTTI_TRY(address_at(options.iface));
    if (nodes.master_address.empty() && options.node == 0) nodes.master_address = host;
  }
  if (by_number && !one_node && nodes.master_address.empty()) {
    return Error{.code = Code::kUsage,
                 .detail = std::to_string(nodes.nodes) + " nodes need --master-addr",
                 .hint =
                     "the address of node 0, as all nodes see it; or nodes without numbers: --rdzv-backend elastic "
                     "--rdzv-endpoint HOST"};
  }
  if (nodes.master_address.empty() && by_number) nodes.master_address = "127.0.0.1";
  const std::optional<int> wanted_port = one_node || !by_number || options.master_port ? options.master_port : 29500;
  nodes.master_port = wanted_port.value_or(0);
  if (options.store_port && wanted_port == options.store_port) {
    return Error{
        .code = Code::kUsage,
        .detail = "--store-port and the master port are both " + std::to_string(*wanted_port),
        .hint = "the master port belongs to the program; give the store another one, or leave --store-port out"};
  }
  nodes.store = TUTTI_TRY(store_address(options, nodes.master_address, nodes.nodes, nodes.master_port));
  if (options.node == 0 && by_number) {
    std::string host = nodes.store.host;
    if (one_node) {
      const Address wanted{.host = nodes.master_address};
      host = TUTTI_TRY(serving_addresses(wanted, "--master-addr", Identity::OneHost::kYes)).front().host;
    }
    nodes.master_port = TUTTI_TRY(free_port(host, wanted_port));
  }
  if (int(nodes.counts.all.size()) == nodes.nodes)
    TUTTI_TRY(check_shown(options.output, std::accumulate(nodes.counts.all.begin(), nodes.counts.all.end(), 0)));
  if (options.job.find_first_not_of(kJobLetters) != std::string::npos || options.job.starts_with('.') ||
      options.job.size() > 200) {
    return Error{.code = Code::kUsage,
                 .detail = "--job-id '" + options.job + "' is no name for a job",
                 .hint =
                     "letters, digits, '.', '_' and '-', at most 200, not beginning with '.': it also names a folder "
                     "of --log-dir"};
  }
  if (options.job.empty() && nodes.backend == RendezvousBackend::kEtcd) {
    return Error{.code = Code::kUsage,
                 .detail = "--rdzv-backend etcd needs --rdzv-id",
                 .hint = "a name that no other job has there, the same on all nodes"};
  }
  spec.job = !options.job.empty() ? options.job
             : one_node           ? new_job_id()
                                  : "tutti-" + std::to_string(by_number ? nodes.master_port : nodes.store.port);
  nodes.credentials = Credentials{.secret = TUTTI_TRY(secret_of(options, one_node)), .job = spec.job};
  spec.credentials = nodes.credentials;
  if (const std::string warning = nodes.credentials.secret.warning(); options.node == 0 && !warning.empty())
    log::warn(warning);
  nodes.timeout = options.rendezvous.join_timeout.value_or(options.connect_timeout);
  nodes.lost_after = options.rendezvous.lost_after.value_or(options.node_timeout);
  nodes.say = [](const std::string& text) { log::info(text); };
  nodes.host = spec.host = host_name();
  nodes.about = encode_shares(spec.shares);
  spec.max_restarts = options.restarts.most;
  nodes.judge = [policy = options.restarts](const std::vector<Fault>& past, const Fault& fault) {
    return judge(policy, past, fault);
  };
  spec.tune = options.tune;
  spec.announce = options.announce;
  spec.grace = options.grace;
  spec.signal_grace = options.signal_grace;
  spec.time_limit = options.time_limit;
  spec.output = options.output;
  spec.watch = options.watch;
  spec.report_file = options.report_file;
  spec.flight_folder = env("TUTTI_FLIGHT_DIR")
                           .value_or(options.output.log_dir.empty() ? default_flight_folder(spec.job) : std::string());
  return job;
}

Result<int> run_prepared(Prepared& job, const Fd& keeper_gone) {
  auto opened = Nodes::open(job.nodes);
  if (!opened.ok()) {
    Error error = opened.error();
    if (error.code == Code::kAddressInUse)
      error.hint = std::string("the nodes' store needs this port: choose another with ") +
                   (job.nodes.backend == RendezvousBackend::kStatic ? "--store-port" : "--rdzv-endpoint") +
                   ", the same on all nodes";
    return error;
  }
  const Fd secret =
      job.nodes.credentials.secret.is_none() ? Fd() : TUTTI_TRY(secret_descriptor(job.nodes.credentials.secret));
  job.agent.secret_fd = secret.get();
  job.agent.met = [&](const Round& round) {
    if (const Status shown = check_shown(job.agent.output, round.layout.world_size()); !shown)
      log::warn(shown.error().detail);
  };
  job.agent.table = [](const Round& round) { return rank_table(rows_of(round)); };
  return run_agent(job.agent, **opened, keeper_gone);
}

}  // namespace

Result<int> run_job(const JobOptions& options) {
  make_sane();
  Prepared job = TUTTI_TRY(prepare(options));
  if (!options.iface.empty()) ::setenv("TUTTI_IFACE", options.iface.c_str(), 1);  // for the workers
  std::optional<ScratchFolder> scratch;
  if (job.agent.output.log_dir.empty()) job.agent.scratch = scratch.emplace().path();
  return run_with_keeper([&](const Fd& keeper_gone) {
    const Result<int> code = run_prepared(job, keeper_gone);
    if (code.ok()) return *code;
    std::fprintf(stderr, "[tutti] %s\n", to_string(code.error()).c_str());
    return exit_code_of(code.error().code);
  });
}

int exit_code_of(Code code) {
  switch (code) {
    case Code::kTimeout:
    case Code::kUnreachable:
    case Code::kPeerLost:
    case Code::kAborted:
      return kExitRendezvous;
    case Code::kUsage:
    case Code::kInvalidArgument:
    case Code::kMismatch:
    case Code::kRefused:
    case Code::kAddressInUse:
    case Code::kNotFound:
    case Code::kUnsupported:
      return kExitUsage;
    case Code::kCorrupt:
    case Code::kLimit:
    case Code::kSystem:
    case Code::kInternal:
      return 1;
  }
  return 1;
}

}  // namespace tutti
