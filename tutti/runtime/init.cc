// Four steps. Join: who is this rank, and where is the store (rendezvous/). Introduce: every rank tells on which
// machine it is and where its socket for shared memory is. Open: shared memory with the ranks of this host, a TCP port
// if there are other hosts. Create the world group.
#include "tutti/runtime/init.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <future>
#include <latch>

#include "tutti/base/env.h"
#include "tutti/base/log.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/base/thread.h"
#include "tutti/comm/backends/load.h"
#include "tutti/comm/group/callbacks.h"
#include "tutti/comm/group/group_state.h"
#include "tutti/comm/links/network_probe.h"
#include "tutti/comm/plans/plan.h"
#include "tutti/launch/tuning.h"
#include "tutti/rendezvous/identity.h"
#include "tutti/rendezvous/join.h"
#include "tutti/runtime/introduction.h"
#include "tutti/runtime/process_hooks.h"
#include "tutti/store/prefix_store.h"
#include "tutti/store/server/server.h"
#include "tutti/store/tcp_store.h"
#include "tutti/transport/address.h"

namespace tutti {
namespace {

using comm::GroupState;
using comm::Process;
using comm::ProgressThread;

constexpr Duration kLauncherLimit = std::chrono::seconds(10);  // to connect to tutti run's reports of failures
// Once the world exists: errors are reported through the store, and must not hang.
constexpr Duration kWorldStoreLimit = std::chrono::seconds(3);

constexpr std::size_t kLongestHostId = 255;

struct Settings {
  std::string transport;  // "auto", "shm", "tcp"
  comm::Engines engines;
  std::string algorithm;  // a plan by its name; empty: chosen by the table and the direct path
  Duration join_timeout, collective_timeout, leave_timeout, hang_warning, peer_timeout;
  int streams = 1;                                               // connections of each pair
  std::optional<LinkCost> network;                               // none: measured
  std::optional<std::size_t> heap_limit;                         // none: what the machine has
  std::size_t flight_entries = trace::FlightRecorder::kEntries;  // 0: off
};

std::size_t physical_memory() { return std::size_t(::sysconf(_SC_PHYS_PAGES)) * std::size_t(::sysconf(_SC_PAGESIZE)); }

Result<std::string> forced_algorithm() {
  const std::string given = env("TUTTI_ALGORITHM").value_or("");
  const std::vector<std::string> known = comm::algorithm_names();
  if (given.empty() || std::find(known.begin(), known.end(), given) != known.end()) return given;
  return Error{.code = Code::kUsage,
               .detail = "TUTTI_ALGORITHM is \"" + given + "\", which is no algorithm",
               .hint = did_you_mean(nearest(given, known), "known are " + join(known, ", "))};
}

// "cpu", "cuda", "cuda:1".
bool is_device(const std::string& text) {
  if (text == "cpu" || text == "cuda") return true;
  const auto number = text.starts_with("cuda:") ? parse_int(text.substr(5)) : std::nullopt;
  return number && *number >= 0;
}

Result<Settings> read_settings(const Options& options) {
  Settings s;
  s.transport = !options.transport.empty() ? options.transport : env("TUTTI_TRANSPORT").value_or("auto");
  if (s.transport != "auto" && s.transport != "shm" && s.transport != "tcp")
    return Error{.code = Code::kUsage,
                 .detail = "the transport is \"" + s.transport + "\", expected auto, shm or tcp",
                 .hint = "see TUTTI_TRANSPORT"};
  if (const auto id = env("TUTTI_HOST_ID"); id && id->size() > kLongestHostId)
    return Error{.code = Code::kUsage,
                 .detail = "TUTTI_HOST_ID has " + std::to_string(id->size()) + " characters",
                 .hint = "a name of the host, of at most " + std::to_string(kLongestHostId)};
  s.engines = TUTTI_TRY(comm::chosen_engines(options.engine));
  s.algorithm = TUTTI_TRY(forced_algorithm());
  const auto seconds = [](const std::optional<Duration>& given, const char* variable,
                          double otherwise) -> Result<Duration> {
    if (given && *given <= Duration(0))
      return Error{.code = Code::kUsage,
                   .detail = std::string("the option for which ") + variable + " stands is " +
                             seconds_text(to_seconds(*given)) + ", expected more than 0 s"};
    if (given) return *given;
    const std::optional<double> value = TUTTI_TRY(env_seconds(variable));
    if (value && *value <= 0)
      return Error{.code = Code::kUsage, .detail = std::string(variable) + " must be more than 0 s"};
    return from_seconds(value.value_or(otherwise));
  };
  s.join_timeout = TUTTI_TRY(seconds(options.join_timeout, "TUTTI_JOIN_TIMEOUT", 300));
  s.collective_timeout = TUTTI_TRY(seconds(options.collective_timeout, "TUTTI_TIMEOUT", 600));
  s.leave_timeout = TUTTI_TRY(seconds(options.leave_timeout, "TUTTI_LEAVE_TIMEOUT", 10));
  s.peer_timeout = TUTTI_TRY(seconds({}, "TUTTI_PEER_TIMEOUT", 30));
  s.hang_warning = TUTTI_TRY(seconds({}, "TUTTI_HANG_WARNING", 30));
  if (const auto text = env("TUTTI_STREAMS")) {
    const auto streams = parse_int(*text);
    if (!streams || *streams < 1 || *streams > transport::TcpTransport::kMostStreams)
      return Error{.code = Code::kUsage,
                   .detail = "TUTTI_STREAMS is \"" + *text + "\", expected a number from 1 to " +
                             std::to_string(transport::TcpTransport::kMostStreams)};
    s.streams = int(*streams);
  }
  if (const auto text = env("TUTTI_NETWORK")) s.network = TUTTI_TRY(comm::parse_network(*text));
  if (const auto text = env("TUTTI_HEAP_LIMIT")) {
    const auto bytes = parse_bytes(*text);
    if (!bytes || *bytes < (1 << 20))
      return Error{.code = Code::kUsage,
                   .detail = "TUTTI_HEAP_LIMIT is \"" + *text + "\", expected a size of at least 1M such as 8G"};
    s.heap_limit = *bytes;
  }
  if (const auto text = env("TUTTI_FLIGHT_SIZE")) {
    const auto entries = parse_int(*text);
    if (!entries || *entries < 0 || *entries > 10000000)
      return Error{
          .code = Code::kUsage,
          .detail = "TUTTI_FLIGHT_SIZE is \"" + *text + "\", expected a number of operations from 0 (off) to 10000000"};
    s.flight_entries = std::size_t(*entries);
  }
  if (const auto device = env("TUTTI_DEVICE"); device && !is_device(*device))
    return Error{.code = Code::kUsage,
                 .detail = "TUTTI_DEVICE is \"" + *device + "\", expected cpu, cuda or cuda:N such as cuda:0"};
  if (const auto mixed = env("TUTTI_MIXED_BUILDS"); mixed && *mixed != "0" && *mixed != "1")
    return Error{.code = Code::kUsage, .detail = "TUTTI_MIXED_BUILDS is \"" + *mixed + "\", expected 1 or 0"};
  TUTTI_TRY(comm::check_heeded(s.engines, options.transport));
  return s;
}

// Ranks that transfer bytes in different ways would wait for one another until their first deadline.
Status compare(const runtime::RankIntroduction& theirs, int their_rank, const runtime::RankIntroduction& mine,
               int my_rank) {
  const auto same = [&](const char* variable, const std::string& given, const std::string& own) -> Status {
    if (given == own) return {};
    const auto text = [](const std::string& setting) { return setting.empty() ? "not set" : setting; };
    return Error{.code = Code::kUsage,
                 .detail = variable + (" is " + text(given)) + " on rank " + std::to_string(their_rank) + " and " +
                           text(own) + " on rank " + std::to_string(my_rank),
                 .hint = "give all ranks the same"};
  };
  TUTTI_TRY(same("TUTTI_TRANSPORT", theirs.transport, mine.transport));
  TUTTI_TRY(same("TUTTI_ENGINE", theirs.engines, mine.engines));
  TUTTI_TRY(same("TUTTI_ALGORITHM", theirs.algorithm, mine.algorithm));
  return same("TUTTI_STREAMS", std::to_string(theirs.streams), std::to_string(mine.streams));
}

// The introductions of all ranks, by rank. Ranks with one sharing id share memory: those of one host, unless
// TUTTI_HOST_ID says otherwise (containers of one machine that cannot reach one another's sockets; trying out several
// hosts on one machine).
struct Introductions {
  std::vector<std::string> boot_ids, host_ids, sharing_ids, agents, shm_contacts;
  std::vector<CoreMask> cores;  // that the rank may use
};

Result<Introductions> exchange_introductions(rendezvous::Membership& m, const std::string& host,
                                             const std::string& shm_contact, const Settings& settings,
                                             Deadline deadline, const Store::Waiting& waiting) {
  const runtime::RankIntroduction mine{.boot = boot_id(),
                                       .host = host,
                                       .sharing = env("TUTTI_HOST_ID").value_or(host),
                                       .agent = env("GROUP_RANK").value_or(""),
                                       .shm = shm_contact,
                                       .cores = allowed_cores(),
                                       .transport = settings.transport,
                                       .engines = "cpu:" + settings.engines.cpu + ",cuda:" + settings.engines.cuda,
                                       .algorithm = settings.algorithm,
                                       .streams = settings.streams};
  const std::vector<std::string> encoded =
      TUTTI_TRY(m.store->gather_all("meet", m.rank, m.world_size, encode(mine), deadline, waiting));
  Introductions all;
  for (std::size_t r = 0; r < encoded.size(); ++r) {
    auto introduction = runtime::parse_introduction(encoded[r]);
    if (!introduction.ok()) {
      Error error = introduction.error();
      error.detail = "rank " + std::to_string(r) + " " + error.detail;
      return error;
    }
    TUTTI_TRY(compare(*introduction, int(r), mine, m.rank));
    all.boot_ids.push_back(std::move(introduction->boot));
    all.host_ids.push_back(std::move(introduction->host));
    all.sharing_ids.push_back(std::move(introduction->sharing));
    all.agents.push_back(std::move(introduction->agent));
    all.shm_contacts.push_back(std::move(introduction->shm));
    all.cores.push_back(std::move(introduction->cores));
  }
  return all;
}

// The address at which the other hosts reach this rank: the one that reached the store, never what the host name
// resolves to.
Result<std::string> advertised_host(const rendezvous::Membership& m, bool several_machines) {
  std::string host = m.local_host;
  if (host.empty()) {
    const auto mine = transport::local_addresses();
    host = several_machines && !mine.empty() ? mine.front() : "127.0.0.1";
  }
  if (several_machines && transport::is_loopback(transport::Address{.host = host})) {
    const auto mine = transport::local_addresses();
    return Error{.code = Code::kUsage,
                 .detail = "this rank would give the other machines the address " + host +
                           ", which is loopback: they would reach themselves",
                 .hint =
                     "set MASTER_ADDR to an address of rank 0's machine that the others reach, not 127.0.1.1 or "
                     "localhost; this machine has " +
                     join(mine, ", "),
                 .rank = m.rank};
  }
  return host;
}

Status open_paths(Process& p, rendezvous::Membership& m, const Settings& settings,
                  std::unique_ptr<transport::Host> host, const Introductions& ranks, Deadline deadline) {
  const int n = m.world_size;
  // Nodes are numbered by their lowest rank. With TUTTI_TRANSPORT=tcp every rank counts as a node; a machine's devices
  // are shared by its ranks all the same.
  p.world.resize(n);
  std::vector<std::string> seen;
  std::vector<std::pair<std::string, std::string>> agents;
  for (int r = 0; r < n; ++r) {
    const std::string id = settings.transport == "tcp" ? std::to_string(r) : ranks.sharing_ids[r];
    const auto found = std::find(seen.begin(), seen.end(), id);
    p.world[r].node = int(found - seen.begin());
    if (found == seen.end()) seen.push_back(id);
    const std::pair agent(ranks.sharing_ids[r], ranks.agents[r]);
    p.world[r].agent = int(std::find(agents.begin(), agents.end(), agent) - agents.begin());
    if (p.world[r].agent == int(agents.size())) agents.push_back(agent);
    p.world[r].local_rank = int(std::count_if(p.world.begin(), p.world.begin() + r, [&](const Process::Rank& other) {
      return other.node == p.world[r].node;
    }));
    p.world[r].machine_rank = int(std::count(ranks.boot_ids.begin(), ranks.boot_ids.begin() + r, ranks.boot_ids[r]));
  }
  p.ranks_on_machine =
      int(std::count(ranks.boot_ids.begin(), ranks.boot_ids.end(), ranks.boot_ids[std::size_t(p.rank)]));
  // Ranks that are bound to one core each have as many cores as ranks, although each sees only its own.
  CoreMask cores;
  for (int r = 0; r < n; ++r) {
    if (ranks.boot_ids[r] != ranks.boot_ids[std::size_t(p.rank)]) continue;
    cores.resize(std::max(cores.size(), ranks.cores[r].size()));
    for (std::size_t i = 0; i < ranks.cores[r].size(); ++i) cores[i] |= ranks.cores[r][i];
  }
  p.cores_of_ranks = std::max(1, count_of(cores));
  if (const auto quota = cgroup_cores()) p.cores_of_ranks = std::min(p.cores_of_ranks, *quota);
  const bool several = seen.size() > 1;
  if (several && settings.transport == "shm")
    return Error{.code = Code::kUsage,
                 .detail = "TUTTI_TRANSPORT=shm, but the ranks are on " + std::to_string(seen.size()) + " hosts",
                 .hint = "use auto"};

  std::vector<std::string> contacts;
  std::vector<int> here;
  for (int r = 0; r < n; ++r)
    if (p.world[r].node == p.world[p.rank].node) contacts.push_back(ranks.shm_contacts[r]), here.push_back(r);
  if (host && here.size() > 1) {
    const std::size_t heap_limit =
        settings.heap_limit.value_or(transport::default_reserve(physical_memory(), int(here.size())));
    TUTTI_TRY(host->join(contacts, here, p.world[p.rank].local_rank, heap_limit, deadline));
    p.host = std::move(host);
    p.heap = std::make_unique<comm::Heap>(p.host->arena());
  }
  if (several) {
    const bool several_machines = std::any_of(ranks.host_ids.begin(), ranks.host_ids.end(),
                                              [&](const std::string& id) { return id != ranks.host_ids[0]; });
    const std::string bind = TUTTI_TRY(advertised_host(m, several_machines));
    p.address = bind;
    p.tcp = TUTTI_TRY(transport::TcpTransport::open(bind, m.credentials, p.rank));
    p.tcp->set_peer_timeout(settings.peer_timeout);
    p.tcp->set_streams(settings.streams);
    const auto all = TUTTI_TRY(m.store->gather_all("tcp", m.rank, n, p.tcp->contact(), deadline));
    for (int r = 0; r < n; ++r) p.world[r].tcp_contact = all[r];
  }
  return {};
}

// The agent of tutti run reports failed ranks, on a connection of this rank's own.
struct Launcher {
  std::unique_ptr<Store> store;
  std::shared_ptr<Watch> watch;
};

Result<Launcher> find_launcher(const rendezvous::Membership& m) {
  const auto deadline = Deadline::after(kLauncherLimit);
  const std::string prefix = "generation-" + std::to_string(m.generation);
  auto connection = TUTTI_TRY(TcpStore::connect(m.stores, m.store_credentials, m.rank, deadline));
  auto watch = connection->watch(prefix + "/fault", deadline);
  auto store = std::make_unique<PrefixStore>(prefix, std::move(connection));
  store->set_call_timeout(kWorldStoreLimit);
  return Launcher{.store = std::move(store), .watch = std::make_shared<Watch>(TUTTI_TRY(std::move(watch)))};
}

// Takes some round trips to the store, beside the exchange of introductions. The future is not valid if there is no
// launcher.
Result<std::future<Result<Launcher>>> look_for_launcher(const rendezvous::Membership& m) {
  if (m.started_by != "tutti run") return std::future<Result<Launcher>>();
  return start_async([&m] { return find_launcher(m); });
}

// The progress thread also waits for such reports and for SIGUSR2, and sweeps the TCP port. A report may already be
// there and end all groups through process->progress_thread, so the thread reads none before that is set.
// `flight_signal`: readable after SIGUSR2; -1: none.
Status start_progress_thread(Process& p, std::future<Result<Launcher>> looking, int flight_signal) {
  std::vector<ProgressThread::Watched> watched;
  const auto thread_is_set = std::make_shared<std::latch>(1);
  if (looking.valid()) {
    auto launcher = looking.get();
    if (launcher.ok()) {
      p.launcher = std::move(launcher->store);
      watched.push_back({launcher->watch->fd(), [&p, thread_is_set, watch = launcher->watch] {
                           thread_is_set->wait();
                           const auto fault = watch->try_read();
                           if (!fault) return true;
                           if (fault->ok()) p.fault_arrived(**fault);
                           return false;
                         }});
    } else {
      log::warn("tutti run cannot report failures of other ranks to this rank, which notices them when a call fails: " +
                to_string(launcher.error()));
    }
  }
  if (flight_signal >= 0 && p.flight)
    watched.push_back({flight_signal, [&p, signal = flight_signal] {
                         eventfd_t count = 0;
                         (void)::eventfd_read(signal, &count);
                         p.write_flight(trace::FlightRecorder::Why::kAsked, "SIGUSR2");
                         return true;
                       }});
  if (p.tcp)
    watched.push_back({p.tcp->sweep_fd(), [tcp = p.tcp.get()] {
                         tcp->sweep();
                         return true;
                       }});
  p.progress_thread = TUTTI_TRY(ProgressThread::create(p.host.get(), std::move(watched)));
  thread_is_set->count_down();
  return {};
}

// The rank that serves the store stays until the other ranks have said goodbye, or for a while: they may read the root
// cause of an error there. It does not wait for lost ranks.
std::function<void()> make_farewell(const std::shared_ptr<Process>& process, bool serves) {
  return [p = process.get(), serves, n = int(process->world.size()), rank = process->rank] {
    if (!p->store || p->has_fault()) return;
    if (!serves) {
      (void)p->store->set(Process::goodbye_key(rank), "");  // fails if the store is gone
      return;
    }
    const std::vector<int> lost = p->lost_ranks();
    std::vector<std::string> keys;
    for (int r = 0; r < n; ++r)
      if (r != rank && std::find(lost.begin(), lost.end(), r) == lost.end())
        keys.push_back(Process::goodbye_key(r));
    if (!keys.empty())
      (void)p->store->wait(keys, Deadline::after(p->farewell_timeout));  // late ranks have had their time
  };
}

// tutti run sets these variables for its programs; others get a warning, from one rank of each host.
void warn_of_slow_start(const rendezvous::Membership& m) {
  if (m.started_by == "tutti run" || m.local_rank > 0) return;
  const std::string text = launch::slow_start_warning(env, launch::cpu_features(), usable_cores(),
                                                      std::max(1, m.local_world_size), launch::loaded_openblas_core());
  if (!text.empty()) log::warn(text);
}

// For the message about a mistake that is found before the rank has joined; -1 if not even the rank is known.
int told_rank(const Options& options) {
  const auto identity = rendezvous::identify({options.url, options.rank, options.world_size}, current_environment());
  return identity.ok() && identity->world_size > 1 ? identity->rank : -1;
}

// What init() may do to the process.
struct LauncherHooks {
  std::unique_ptr<trace::ProgressPage> page;  // null: none
  int flight_signal = -1;                     // readable after SIGUSR2; -1: that signal is the program's
};

Result<Group> open_world(rendezvous::Membership m, const Settings& settings, LauncherHooks hooks, Deadline deadline) {
  auto process = std::make_shared<Process>();
  process->rank = m.rank;
  if (hooks.page) hooks.page->join(m.rank, m.world_size);
  process->page = std::move(hooks.page);
  process->collective_timeout = settings.collective_timeout;
  process->hang_warning = settings.hang_warning;
  process->farewell_timeout = settings.leave_timeout;
  process->algorithm = settings.algorithm;
  process->given_network = settings.network;
  process->engine_name = settings.engines.cpu;
  process->cuda_engine = settings.engines.cuda;
  GroupState::Spec spec{.name = "world", .rank = m.rank};
  for (int r = 0; r < m.world_size; ++r) spec.global_ranks.push_back(r);
  if (m.world_size == 1) {
    process->world.resize(1);
    if (process->page) process->page->set_joined();
    return Group(TUTTI_TRY(GroupState::create(process, std::move(spec), nullptr, deadline)));
  }
  log::set_rank(m.rank);
  if (settings.flight_entries > 0) {
    process->flight = std::make_unique<trace::FlightRecorder>(
        trace::FlightRecorder::Options{.entries = settings.flight_entries,
                                       .folder = env("TUTTI_FLIGHT_DIR").value_or(""),
                                       .job = m.job,
                                       .rank = m.rank,
                                       .world_size = m.world_size,
                                       .page = process->page.get()},
        comm::describe_flight_call);
    process->flight->put_older_record_aside();
  }
  std::unique_ptr<transport::Host> host;
  if (settings.transport != "tcp") host = TUTTI_TRY(transport::Host::open(m.credentials, m.rank));
  const Store::Waiting waiting = [&](std::span<const int> missing, double waited) {
    log::info("rank " + std::to_string(m.rank) + " of " + std::to_string(m.world_size) + " has waited " +
              seconds_text(waited) + " for " + ranks_words(missing));
  };
  auto launcher = TUTTI_TRY(look_for_launcher(m));
  const Introductions ranks =
      TUTTI_TRY(exchange_introductions(m, machine_id(), host ? host->contact() : "", settings, deadline, waiting));
  TUTTI_TRY(open_paths(*process, m, settings, std::move(host), ranks, deadline));
  TUTTI_TRY(start_progress_thread(*process, std::move(launcher), hooks.flight_signal));
  Store* const store = m.store.get();
  const bool serves = m.server != nullptr;
  process->store = std::move(m.store);
  process->store->set_call_timeout(kWorldStoreLimit);
  process->keep_alive = std::shared_ptr<StoreServer>(std::move(m.server));
  process->farewell = make_farewell(process, serves);
  const auto exchange = [&](const std::string& mine) {
    return store->gather_all("world", m.rank, m.world_size, mine, deadline, waiting);
  };
  Group world(TUTTI_TRY(GroupState::create(process, std::move(spec), exchange, deadline)));
  if (process->page) process->page->set_joined();
  return world;
}

// `rank` is this rank, as soon as it is one of several.
Result<Group> join_world(const Options& options, int& rank) {
  log::tell_of_setting();
  const Result<Settings> understood = read_settings(options);
  if (!understood.ok()) {
    Error error = understood.error();
    error.rank = told_rank(options);
    return error;
  }
  const Settings& settings = *understood;
  const auto deadline = Deadline::after(settings.join_timeout);
  LauncherHooks hooks{.page = runtime::open_progress(),
                      .flight_signal = runtime::flight_signal()};  // before a rank waits for the others
  if (hooks.page) hooks.page->set_called();
  rendezvous::Membership m = TUTTI_TRY(join(rendezvous::JoinOptions{
      .url = options.url, .rank = options.rank, .world_size = options.world_size, .timeout = settings.join_timeout}));
  warn_of_slow_start(m);
  if (m.started_by == "tutti run") (void)std::setvbuf(stdout, nullptr, _IOLBF, 0);  // tutti run reads whole lines
  rank = m.world_size > 1 ? m.rank : -1;
  return open_world(std::move(m), settings, std::move(hooks), deadline);
}

}  // namespace

Status check_variables() {
  (void)TUTTI_TRY(read_settings({}));
  return {};
}

Result<Group> init_as_guest(const rendezvous::ForeignStore& store, const rendezvous::ForeignWorld& world,
                            const Options& options) {
  Settings settings = TUTTI_TRY(read_settings(options));
  const auto deadline = Deadline::after(settings.join_timeout);
  if (!env("TUTTI_FLIGHT_DIR") && !env("TUTTI_FLIGHT_SIZE")) settings.flight_entries = 0;
  LauncherHooks hooks;
  if (env("TUTTI_PROGRESS_FD")) hooks = {.page = runtime::open_progress(), .flight_signal = runtime::flight_signal()};
  if (hooks.page) hooks.page->set_called();
  rendezvous::Membership m = TUTTI_TRY(rendezvous::join_through(store, world, settings.join_timeout));
  return open_world(std::move(m), settings, std::move(hooks), deadline);
}

bool end_callbacks(Duration limit) { return comm::Callbacks::of_process().close(limit); }

Result<Group> try_init(const Options& options) {
  int rank = -1;
  Result<Group> world = join_world(options, rank);
  if (world.ok()) return world;
  // Settings that contradict each other are reported in one sentence, the same on every rank.
  Error error = world.error();
  if (error.rank < 0 && error.code != Code::kUsage) error.rank = rank;
  return error;
}

Group init(const Options& options) {
  runtime::end_uncaught_exceptions_with_a_sentence();
  return try_init(options).or_throw();
}

}  // namespace tutti
