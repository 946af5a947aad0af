// Each entrant is other processes: ours too, so that all start from nothing. Peers get their best settings.
#include "bench/comparison/entrants.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/transport/crypto.h"

namespace tutti::bench {
namespace {

namespace fs = std::filesystem;

// One entrant, one turn. A turn of the slowest takes half a minute.
constexpr Duration kEntrantPatience = std::chrono::minutes(10);
// The bandwidth of a stream says nothing of the time of a message that is shorter.
constexpr std::size_t kLeastForStream = 1 << 20;
constexpr std::size_t kMostBarePrivate = 16 << 10;  // as in peers/bare.cc

const std::vector<std::string> kPeerVerbs = {"all_reduce", "reduce",     "broadcast", "all_gather", "gather",
                                             "scatter",    "all_to_all", "send_recv", "ping_pong",  "barrier"};

std::vector<Item> of_verbs(const Task& task, const std::vector<std::string>& verbs) {
  std::vector<Item> part;
  for (const Item& item : task.items)
    if (std::find(verbs.begin(), verbs.end(), item.op) != verbs.end()) part.push_back(item);
  return part;
}

// The peers' programs lie beside the engines.
Result<std::string> peer_file(const std::string& name, const std::string& needs) {
  const fs::path own = own_path();
  for (const fs::path& folder : {own.parent_path().parent_path() / "lib/tutti", fs::path(TUTTI_INSTALLED_PEERS)}) {
    const fs::path path = folder / name;
    if (std::error_code failed; fs::exists(path, failed)) return path.string();
  }
  return Error{.code = Code::kNotFound,
               .detail = "there is no " + name + " beside this tutti: it was built without " + needs,
               .hint = "install that, then configure and build again"};
}

// For the environment of a peer that has to use a congestion control.
Result<Environment> peer_environment(const Task& task) {
  Environment environment = clean_environment();
  if (task.congestion.empty()) return environment;
  environment["LD_PRELOAD"] = TUTTI_TRY(peer_file("libpeer_congestion.so", "it"));
  environment["TUTTI_BENCH_CONGESTION"] = task.congestion;
  return environment;
}

std::vector<std::string> peer_words(const Task& task, const std::vector<Item>& part) {
  std::vector<std::string> words = {"--rounds", std::to_string(task.method.rounds), "--warm-up",
                                    std::to_string(task.method.warm_up)};
  if (task.method.rewrite) words.emplace_back("--rewrite");
  for (const Item& item : part) words.push_back(item.op + ":" + std::to_string(item.bytes));
  return words;
}

std::string random_text() {
  std::array<std::byte, 32> bytes;
  crypto::fill_random(bytes);
  std::string text;
  for (const std::byte b : bytes) text += "0123456789abcdef"[unsigned(b) & 15];
  return text;
}

// `tutti bench OP ...` for one operation.
std::vector<std::string> our_words(const Task& task, const std::string& op, const std::vector<Item>& part) {
  std::vector<std::string> sizes;
  for (const Item& item : part)
    if (item.op == op) sizes.push_back(std::to_string(item.bytes));
  std::vector<std::string> words = {"bench",
                                    op,
                                    "--json",
                                    "--rounds",
                                    std::to_string(task.method.rounds),
                                    "--warm-up",
                                    std::to_string(task.method.warm_up)};
  if (sizes != std::vector<std::string>{"0"}) words.insert(words.end(), {"--sizes", join(sizes, ",")});
  if (task.method.rewrite) words.emplace_back("--rewrite");
  if (task.private_memory) words.insert(words.end(), {"--memory", "private"});
  words.insert(words.end(), task.our_words.begin(), task.our_words.end());
  return words;
}

// A rank each, which meet at the first host.
std::vector<Program> ranks_on(const TwoHosts& hosts, int ranks, Program program) {
  program.environment["WORLD_SIZE"] = std::to_string(ranks);
  program.environment["MASTER_ADDR"] = TwoHosts::kAddress[0];
  program.environment["MASTER_PORT"] = "29500";  // nobody else is on these hosts
  program.environment["TUTTI_SECRET"] = random_text();
  std::vector<Program> programs;
  for (int rank = 0; rank < ranks; ++rank) {
    program.environment["RANK"] = std::to_string(rank);
    programs.push_back(hosts.on(rank * 2 / ranks, program));
  }
  return programs;
}

Result<PeerFigures> run_ours(const Task& task, const std::vector<Item>& part, TwoHosts* hosts) {
  std::set<std::string> ops;
  PeerFigures all;
  for (const Item& item : part) {
    if (!ops.insert(item.op).second) continue;
    Program program{
        .path = own_path(), .arguments = our_words(task, item.op, part), .environment = clean_environment()};
    std::vector<Program> programs;
    if (task.two_hosts) {
      program.arguments.emplace_back("--as-rank");
      programs = ranks_on(*hosts, task.ranks, program);
    } else {
      program.arguments.insert(program.arguments.end(), {"-n", std::to_string(task.ranks)});
      programs.push_back(std::move(program));
    }
    auto figures = TUTTI_TRY(read_figures(TUTTI_TRY(run_together(programs, Deadline::after(kEntrantPatience)))));
    all.merge(figures);
  }
  return all;
}

// A file that mpirun starts instead of ssh: it enters the other host.
class RemoteShell {
 public:
  static Result<std::unique_ptr<RemoteShell>> make(const TwoHosts& hosts) {
    std::string folder = (fs::temp_directory_path() / "tutti-mpirun-XXXXXX").string();
    if (!::mkdtemp(folder.data())) return system_error(errno, "could not make a folder in " + folder);
    std::unique_ptr<RemoteShell> shell(new RemoteShell(folder));
    const auto words = hosts.entering(1);
    std::ofstream(shell->path()) << "#!/bin/sh\nshift\nexec " << join(words, " ") << " sh -c \"$*\"\n";
    fs::permissions(shell->path(), fs::perms::owner_all);
    return shell;
  }
  ~RemoteShell() {
    std::error_code failed;
    fs::remove_all(folder_, failed);
  }
  std::string path() const { return folder_ + "/enter"; }

 private:
  explicit RemoteShell(std::string folder) : folder_(std::move(folder)) {}
  const std::string folder_;
};

Result<PeerFigures> run_mpi(const Task& task, const std::vector<Item>& part, TwoHosts* hosts, const std::string& path,
                            bool best) {
  std::vector<std::string> words = TUTTI_TRY(mpirun_command(task.ranks));
  Program mpirun{.path = words[0], .environment = TUTTI_TRY(peer_environment(task))};
  permit_root(mpirun.environment);
  // Without these Open MPI 4.1 faults its temporaries in anew at every call.
  for (const char* name : {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"}) mpirun.environment.erase(name);
  if (best) {
    mpirun.environment["MALLOC_MMAP_THRESHOLD_"] = "2147483648";
    mpirun.environment["MALLOC_TRIM_THRESHOLD_"] = "4294967296";
  }
  std::unique_ptr<RemoteShell> shell;
  if (task.two_hosts) {
    shell = TUTTI_TRY(RemoteShell::make(*hosts));
    const std::string half = ":" + std::to_string(task.ranks / 2);
    for (const std::string& word :
         {std::string("--host"), TwoHosts::kAddress[0] + half + "," + TwoHosts::kAddress[1] + half,
          std::string("--mca"), std::string("plm_rsh_agent"), shell->path(), std::string("--mca"), std::string("pml"),
          std::string("ob1"), std::string("--mca"), std::string("btl"),
          std::string(task.ranks > 2 ? "vader,tcp,self" : "tcp,self"), std::string("--mca"),
          std::string("btl_tcp_if_include"), std::string(TwoHosts::kNetwork), std::string("--mca"),
          std::string("oob_tcp_if_include"), std::string(TwoHosts::kNetwork), std::string("--bind-to"),
          std::string("none")})
      words.push_back(word);
    for (const char* name :
         {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "LD_PRELOAD", "TUTTI_BENCH_CONGESTION"})
      if (mpirun.environment.contains(name)) words.insert(words.end(), {"-x", name});
  }
  // Each of the two hosts takes all cores for its own.
  if (task.two_hosts && best && task.ranks > usable_cores())
    words.insert(words.end(), {"--mca", "mpi_yield_when_idle", "1"});
  words.push_back(path);
  const auto arguments = peer_words(task, part);
  words.insert(words.end(), arguments.begin(), arguments.end());
  mpirun.arguments.assign(words.begin() + 1, words.end());
  if (task.two_hosts) mpirun = hosts->on(0, std::move(mpirun));
  return read_figures(TUTTI_TRY(run_program(mpirun, Deadline::after(kEntrantPatience))));
}

Result<PeerFigures> run_gloo(const Task& task, const std::vector<Item>& part, TwoHosts* hosts,
                             const std::string& path) {
  Program program{.path = path,
                  .arguments = {"--ranks", std::to_string(task.ranks)},
                  .environment = TUTTI_TRY(peer_environment(task))};
  const auto words = peer_words(task, part);
  if (!task.two_hosts) {
    program.arguments.insert(program.arguments.end(), words.begin(), words.end());
    return read_figures(TUTTI_TRY(run_program(program, Deadline::after(kEntrantPatience))));
  }
  std::string folder = (fs::temp_directory_path() / "tutti-gloo-XXXXXX").string();
  if (!::mkdtemp(folder.data())) return system_error(errno, "could not make a folder in " + folder);
  std::vector<Program> ranks;
  for (int rank = 0; rank < task.ranks; ++rank) {
    const int host = rank * 2 / task.ranks;
    Program one = program;
    one.arguments.insert(one.arguments.end(),
                         {"--rank", std::to_string(rank), "--store", folder, "--address", TwoHosts::kAddress[host]});
    one.arguments.insert(one.arguments.end(), words.begin(), words.end());
    ranks.push_back(hosts->on(host, std::move(one)));
  }
  const auto output = run_together(ranks, Deadline::after(kEntrantPatience));
  std::error_code failed;
  fs::remove_all(folder, failed);
  return read_figures(TUTTI_TRY(output));
}

// One stream from the first host to the second for two seconds: the time that it takes for the bytes of a broadcast.
Result<PeerFigures> run_iperf3(const std::vector<Item>& part, TwoHosts* hosts, const std::string& path) {
  const Program server{.path = path,
                       .arguments = {"-s", "-B", TwoHosts::kAddress[1]},
                       .environment = clean_environment(),
                       .is_server = true};
  // Until the server listens the client is refused, which it says in its JSON only: it exits with 0.
  const Program client{.path = "/bin/sh",
                       .arguments = {"-c",
                                     "for try in $(seq 20); do\n"
                                     "  said=$(timeout 15 \"$0\" -c \"$1\" -t 2 -C cubic -J)\n"
                                     "  case $said in *'\"error\"'*) sleep 0.2;; *) break;; esac\n"
                                     "done\n"
                                     "printf '%s' \"$said\"",
                                     path, TwoHosts::kAddress[1]},
                       .environment = clean_environment()};
  const std::string text =
      TUTTI_TRY(run_together({hosts->on(0, client), hosts->on(1, server)}, Deadline::after(std::chrono::minutes(1))));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const double bits = json.is_object() && json.contains("/end/sum_received/bits_per_second"_json_pointer)
                          ? json["/end/sum_received/bits_per_second"_json_pointer].get<double>()
                          : 0;
  if (!(bits > 0))
    return Error{.code = Code::kCorrupt,
                 .detail = "iperf3 did not say how much it moved: " +
                           (json.is_object() ? json.value("error", std::string("no error either")) : "no JSON")};
  PeerFigures figures;
  for (const Item& item : part) {
    const double us = double(item.bytes) * 8 / bits * 1e6;
    figures[item] = {.us = us, .us_min = us};
  }
  return figures;
}

}  // namespace

const std::vector<std::string>& rival_keys() {
  static const std::vector<std::string> keys = {"mpi", "mpi_default", "gloo", "bare", "bare_wire", "iperf3"};
  return keys;
}

std::string own_path() {
  std::error_code failed;
  const auto path = fs::read_symlink("/proc/self/exe", failed);
  return failed ? std::string() : path.string();
}

void permit_root(Environment& environment) {
  if (::geteuid() != 0) return;
  environment["OMPI_ALLOW_RUN_AS_ROOT"] = environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
}

Result<std::vector<std::string>> mpirun_command(int ranks) {
  const auto path = find_in_path("mpirun");
  if (!path) return Error{.code = Code::kNotFound, .detail = "there is no mpirun here", .hint = "Debian: openmpi-bin"};
  return std::vector<std::string>{*path, "--oversubscribe", "-np", std::to_string(ranks)};
}

Result<int> run_on_two_hosts(int ranks, const std::vector<std::string>& arguments) {
  const auto hosts = TUTTI_TRY(TwoHosts::make());
  const Program program{.path = own_path(), .arguments = arguments, .environment = clean_environment()};
  const std::string said = TUTTI_TRY(run_together(ranks_on(*hosts, ranks, program), Deadline::after(kEntrantPatience)));
  std::fputs(said.c_str(), stdout);
  return 0;
}

Entrant our_entrant(TwoHosts* hosts) {
  return {.key = kOurs,
          .name = "tutti",
          .part = [](const Task& task) { return task.items; },
          .run = [hosts](const Task& task, const std::vector<Item>& part) { return run_ours(task, part, hosts); }};
}

Result<Entrant> rival(const std::string& key, TwoHosts* hosts) {
  if (key == "mpi" || key == "mpi_default") {
    const std::string path = TUTTI_TRY(peer_file("peer_mpi", "an MPI (Debian: libopenmpi-dev openmpi-bin)"));
    TUTTI_TRY(mpirun_command(2));
    std::vector<std::string> verbs = kPeerVerbs;
    verbs.emplace_back("reduce_scatter");
    return Entrant{
        .key = key,
        .name = key == "mpi" ? "Open MPI" : "Open MPI, defaults",
        .part = [verbs](const Task& task) { return of_verbs(task, verbs); },
        .run = [=](const Task& task,
                   const std::vector<Item>& part) { return run_mpi(task, part, hosts, path, key == "mpi"); }};
  }
  if (key == "gloo") {
    const std::string path = TUTTI_TRY(peer_file("peer_gloo", "Gloo (Debian: libgloo-dev)"));
    return Entrant{
        .key = key,
        .name = "Gloo",
        .part = [](const Task& task) { return of_verbs(task, kPeerVerbs); },
        .run = [=](const Task& task, const std::vector<Item>& part) { return run_gloo(task, part, hosts, path); }};
  }
  if (key == "bare") {
    const std::string path = TUTTI_TRY(peer_file("peer_bare", "it"));
    return Entrant{.key = key,
                   .name = "bare loop",
                   .part =
                       [](const Task& task) {
                         std::vector<Item> part;
                         for (const Item& item : of_verbs(task, {"all_reduce", "reduce_scatter", "barrier"}))
                           if (!task.two_hosts && task.ranks <= 16 &&
                               (!task.private_memory || (item.op == "all_reduce" && item.bytes <= kMostBarePrivate)))
                             part.push_back(item);
                         return part;
                       },
                   .run = [path](const Task& task, const std::vector<Item>& part) -> Result<PeerFigures> {
                     Program program{.path = path,
                                     .arguments = {"--ranks", std::to_string(task.ranks)},
                                     .environment = clean_environment()};
                     if (task.private_memory) program.arguments.emplace_back("--private");
                     const auto words = peer_words(task, part);
                     program.arguments.insert(program.arguments.end(), words.begin(), words.end());
                     return read_figures(TUTTI_TRY(run_program(program, Deadline::after(kEntrantPatience))));
                   }};
  }
  if (key == "bare_wire") {
    const std::string path = TUTTI_TRY(peer_file("peer_bare_wire", "it"));
    return Entrant{
        .key = key,
        .name = "bare sockets",
        .part =
            [](const Task& task) {
              if (!task.two_hosts || !task.congestion.empty() || task.method.rewrite) return std::vector<Item>();
              if (task.ranks == 2) return of_verbs(task, {"all_reduce", "broadcast"});
              return task.ranks == 4 ? of_verbs(task, {"all_reduce"}) : std::vector<Item>();
            },
        .run = [path, hosts](const Task& task, const std::vector<Item>& part) -> Result<PeerFigures> {
          const Program program{.path = path, .arguments = peer_words(task, part), .environment = clean_environment()};
          return read_figures(
              TUTTI_TRY(run_together(ranks_on(*hosts, task.ranks, program), Deadline::after(kEntrantPatience))));
        }};
  }
  if (key == "iperf3") {
    const auto path = find_in_path("iperf3");
    if (!path) return Error{.code = Code::kNotFound, .detail = "there is no iperf3 here", .hint = "Debian: iperf3"};
    return Entrant{
        .key = key,
        .name = "iperf3",
        .part =
            [](const Task& task) {
              std::vector<Item> part;
              for (const Item& item : task.items)
                if (item.op == "broadcast" && task.two_hosts && task.ranks == 2 && item.bytes >= kLeastForStream)
                  part.push_back(item);
              return part;
            },
        .run = [=](const Task&, const std::vector<Item>& part) { return run_iperf3(part, hosts, *path); }};
  }
  return Error{.code = Code::kUsage,
               .detail = "there is no peer '" + key + "'",
               .hint = did_you_mean(nearest(key, rival_keys()), "known: " + join(rival_keys(), ", "))};
}

}  // namespace tutti::bench
