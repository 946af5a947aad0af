// One pair of functions for each group of the help, in its order: what there is, and what was meant.
#include "apps/tutti/run_options.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "apps/options/command_line.h"
#include "apps/options/help_text.h"
#include "apps/tutti/not_empty.h"
#include "tutti/base/env.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/launch/process.h"
#include "tutti/transport/address.h"

namespace tutti::cli {
namespace {

constexpr const char* kRunSynopsis = "tutti run -n N [OPTIONS] [--] PROGRAM [ARGUMENTS...]";
constexpr std::int64_t kMostRanks = 1'000'000;
constexpr const char* kRunFooter = R"(
Everything after PROGRAM belongs to the program, --help included. Each rank gets torchrun's variables (RANK,
WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ...), so tutti run starts any program, also one in Python. The first rank that
fails ends the job.

Examples:
  tutti run -n 4 ./train --epochs 3
  tutti run -n 2 -- python3 train.py --help
  tutti run --hosts a:8,b:2 ./train

Two hosts by hand, with one command on each and the same secret file on both:
  tutti run --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --master-port 29500 --secret-file s -n 8 ./train
  tutti run --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 29500 --secret-file s -n 2 ./train

Exit codes:
  0      all ranks succeeded
  1      the system or tutti itself failed
  2      wrong usage
  4      the nodes did not meet, or lost one another
  75     the job was asked to stop, and its ranks have saved: start it again
  93     the job fails in the same place again and again: do not start it again
  124    --timeout passed, or no rank made progress
  130    Ctrl-C
  141    the reader of the output has closed it
  other  the code of the failed rank, or 128 + the signal that killed it)";

// Options whose value may come from torchrun's variables, PET_NNODES for --nnodes: those that mean what they mean
// there.
constexpr const char* kTorchrunOptions[] = {"nnodes",
                                            "nproc-per-node",
                                            "node-rank",
                                            "master-addr",
                                            "master-port",
                                            "standalone",
                                            "role",
                                            "module",
                                            "no-python",
                                            "log-dir",
                                            "virtual-local-rank",
                                            "max-restarts",
                                            "rdzv-backend",
                                            "rdzv-id",
                                            "rdzv-conf",
                                            "rdzv-endpoint",
                                            "shutdown-timeout",
                                            "tee",
                                            "redirects",
                                            "local-ranks-filter",
                                            "numa-binding",
                                            "local-addr",
                                            "log-line-prefix-template"};

// What errors call some of them.
constexpr std::pair<const char*, const char*> kOtherNames[] = {
    {"nproc-per-node", "-n "}, {"shutdown-timeout", "--grace"}, {"rdzv-id", "--job-id"}};

constexpr const char* kTorchrunFlags[] = {"standalone", "module", "no-python", "virtual-local-rank"};

// torchrun's options that change nothing here: nothing is polled, and what is started is a program.
struct WithoutEffect {
  const char* name;
  bool takes_value;
};
constexpr WithoutEffect kWithoutEffect[] = {{"monitor-interval", true},  {"start-method", true},
                                            {"event-log-handler", true}, {"logs-specs", true},
                                            {"signals-to-handle", true}, {"use-env", false}};

// torchrun's options that `tutti run` has no use for, and why.
struct Elsewhere {
  const char* name;
  const char* why;
};
constexpr Elsewhere kElsewhere[] = {
    {"run-path", "it starts programs: tutti run ... python3 script.py"},
    {"duplicate-stdout-filters", "--level and --only-ranks choose what is shown here; the files of --log-dir keep all"},
    {"duplicate-stderr-filters", "--level and --only-ranks choose what is shown here; the files of --log-dir keep all"},
};

// "nproc-per-node" -> "PET_NPROC_PER_NODE"
std::string variable_of(const std::string& option) {
  std::string name = "PET_";
  for (const char c : option) name += c == '-' ? '_' : char(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string with_underscores(std::string name) {
  std::replace(name.begin() + 2, name.end(), '-', '_');
  return name;
}

// "-n,--nproc-per-node" and --nproc_per_node, as PyTorch's launchers have both.
std::string both_spellings(const std::string& names) {
  std::string all = names;
  for (const std::string& name : split(names, ',')) {
    if (name.starts_with("--") && name.find('-', 2) != std::string::npos) all += "," + with_underscores(name);
  }
  return all;
}

// The options of one group of the help.
class Group {
 public:
  Group(CLI::App& app, const char* name) : app_(app), name_(name) {}

  void value(const char* names, std::string& target, const char* type, const char* words) const {
    app_.add_option(both_spellings(names), target, words)->group(name_)->type_name(type)->check(kNotEmpty);
  }
  // May be given several times.
  void values(const char* names, std::vector<std::string>& targets, const char* type, const char* words) const {
    app_.add_option(both_spellings(names), targets, words)
        ->group(name_)
        ->type_name(type)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  // One of torchrun's, for which the help has another.
  void hidden(const char* names, std::string& target) const {
    app_.add_option(both_spellings(names), target)->group("")->check(kNotEmpty);
  }
  void flag(const char* names, bool& target, const char* words) const {
    app_.add_flag(both_spellings(names), target, words)->group(name_);
  }

 private:
  CLI::App& app_;
  const char* name_;
};

Result<std::optional<int>> number(const std::string& option, const std::string& text, int least, int most) {
  if (text.empty()) return std::optional<int>();
  return std::optional<int>(int(TUTTI_TRY(whole_number(option, text, least, most))));
}

void declare_ranks(const Group& add, RankTexts& texts, launch::JobOptions& job) {
  add.value(
      "-n,--nproc,--nproc-per-node", texts.ranks, "N",
      "ranks per node: a number (1), gpu, cpu (a rank for each), auto (gpu if there are any, else cpu), or one number "
      "per node (8,2)");
  add.value("--stdin", texts.input, "RANK",
            "the rank that reads the standard input of this command (0); none: all ranks read /dev/null");
  add.value("--role", job.role, "NAME", "ROLE_NAME of the ranks (\"default\")");
  add.flag("--pass-local-rank", job.shares.pass_local_rank,
           "add --local-rank=N to the program's arguments (${local_rank} in the arguments is always replaced)");
  add.flag("-m,--module", texts.module, "PROGRAM is a Python module: run python3 -u -m PROGRAM");
  add.flag("--no-python", texts.no_python,
           "start PROGRAM itself (default; train.py that is not in PATH, and ./train.py that is not executable, are "
           "started with python3 -u)");
}

// torchrun starts Python for each script. A script that a shell would execute by this name chooses its Python in its
// first line.
bool is_script_of_python(const std::string& program) {
  std::error_code none;
  return program.ends_with(".py") && std::filesystem::is_regular_file(program, none) &&
         !launch::find_program(program, env("PATH").value_or("")).ok();
}

Status interpret_ranks(const RankTexts& texts, launch::JobOptions& job) {
  if (!texts.ranks.empty()) job.ranks = texts.ranks;
  if (texts.input == "none") {
    job.input_rank = std::nullopt;
  } else if (!texts.input.empty()) {
    const auto rank = parse_int(texts.input);
    if (!rank || *rank < 0 || *rank > kMostRanks)
      return usage("--stdin needs the number of a rank, or none, not '" + texts.input + "'",
                   texts.input == "all" ? "one rank reads it, and can broadcast it to the others" : "");
    job.input_rank = int(*rank);
  }
  if (texts.module && texts.no_python) return usage("-m starts Python, --no-python does not: give one of them");
  if (texts.module || (!texts.no_python && is_script_of_python(job.program))) {
    job.arguments.insert(job.arguments.begin(), job.program);
    if (texts.module) job.arguments.insert(job.arguments.begin(), "-m");
    job.arguments.insert(job.arguments.begin(), "-u");
    job.program = env("PYTHON_EXEC").value_or("python3");
  }
  return {};
}

void declare_places(const Group& add, PlaceTexts& texts, launch::JobOptions& job) {
  add.value(
      "--bind", texts.bind, "TO",
      "bind each rank to a core, socket or numa node (none: do not bind); near its GPU, if -n gpu, -n auto, --devices "
      "or --visible one gives it one");
  add.hidden("--numa-binding", texts.numa_binding);
  add.value("--devices", job.shares.devices, "LIST", "use only these GPUs of this node, for example 0,2-3");
  add.value("--visible", texts.visible, "WHICH",
            "GPUs that a rank sees: all (default) of the job on this node, or one, its own, as number 0");
  add.flag("--virtual-local-rank", job.shares.virtual_local_rank,
           "same as --visible one, with LOCAL_RANK=0 for every rank");
}

Status interpret_places(const PlaceTexts& texts, launch::JobOptions& job) {
  if (!texts.bind.empty() && !texts.numa_binding.empty())
    return usage("--bind and torchrun's --numa-binding were both given", "leave one of them out");
  std::string bind = texts.bind.empty() ? "none" : texts.bind;
  if (!texts.numa_binding.empty()) {
    const std::vector<std::string> of_torchrun = {"node", "socket", "exclusive"}, ours = {"numa", "socket", "core"};
    bind = ours[TUTTI_TRY(choose("--numa-binding", texts.numa_binding, of_torchrun))];
    job.shares.near_gpus = true;  // as torchrun's
  }
  job.shares.bind = TUTTI_TRY(launch::parse_bind(bind));
  const std::vector<std::string> words = {"all", "one"};
  job.shares.one_device_each = TUTTI_TRY(choose("--visible", texts.visible, words)) == 1;
  return {};
}

void declare_nodes(const Group& add, NodeTexts& texts, launch::JobOptions& job) {
  add.value("--nnodes", texts.nodes, "K",
            "number of nodes (1), or MIN:MAX: the job continues when nodes leave and accepts nodes that join");
  add.value(
      "--rdzv-backend", texts.backend, "HOW",
      "how nodes meet: static (default; numbered by --node-rank), elastic (numbered as they join), or etcd (elastic, "
      "in an etcd server)");
  add.value("--rdzv-endpoint", texts.endpoint, "HOST:PORT",
            "where nodes meet; with elastic, the node that has this address is the server (port 29400)");
  add.value("--rdzv-conf", texts.conf, "KEY=VALUE,...",
            "join_timeout, last_call_timeout (30s, for more than MIN), keep_alive_interval, is_host, failover ...");
  add.flag("--standalone", texts.standalone, "run on this node alone, on any port, inside a scheduler's job too");
  add.value("--node-rank", texts.node_rank, "R", "number of this node, from 0");
  add.value("--master-addr", job.master_address, "HOST", "address of node 0, as all nodes see it");
  add.hidden("--local-addr", texts.local_address);
  add.value("--iface", job.iface, "NAME", "network of the job on nodes with several: eth1, or 10.0.0.0/8");
  add.value("--master-port", texts.master_port, "PORT",
            "MASTER_PORT of the program, which tutti leaves free (29500; on one node any free port)");
  add.value("--store-port", texts.store_port, "PORT", "port of the store on node 0 (default: master port + 1)");
  add.value("--job-id,--rdzv-id", job.job, "ID",
            "name of the job, the same on all nodes (default on one node: a new name; on several: made from the port)");
  add.value("--secret-file", job.secret_file, "FILE",
            "file of mode 0600 with the job's secret (default: the variable TUTTI_SECRET)");
  add.flag("--insecure", job.insecure, "accept connections without a secret");
  add.value("--connect-timeout", texts.connect_timeout, "TIME", "how long the nodes wait for each other (5min)");
}

// Of --local-addr, an address or a name of this host: the subnet that has no other address.
Result<std::string> network_of_address(const std::string& given) {
  const auto addresses = transport::resolve({.host = given});
  if (!addresses.ok()) return usage("--local-addr " + given + ": " + addresses.error().detail);
  for (const transport::Address& address : *addresses)
    if (transport::is_local_address(address.host))
      return address.host + (address.host.find(':') == std::string::npos ? "/32" : "/128");
  return usage("--local-addr " + given + " is no address of this host",
               "this host has " + join(transport::local_addresses(), ", "));
}

Status interpret_nodes(const NodeTexts& texts, launch::JobOptions& job) {
  job.rendezvous = TUTTI_TRY(launch::parse_rendezvous(texts.nodes, texts.backend, texts.endpoint, texts.conf));
  job.nodes = job.rendezvous.max;
  if (!texts.local_address.empty() && !job.iface.empty())
    return usage("--iface and torchrun's --local-addr were both given", "leave one of them out");
  if (!texts.local_address.empty()) job.iface = TUTTI_TRY(network_of_address(texts.local_address));
  if (texts.standalone && job.nodes.value_or(1) != 1)
    return usage("--standalone is one node, --nnodes says " + texts.nodes, "leave one of them out");
  if (texts.standalone) job.nodes = 1;
  const bool by_number = launch::traits_of(job.rendezvous.backend).numbered;
  job.node = TUTTI_TRY(number("--node-rank", texts.node_rank, 0, 100000)).value_or(by_number ? 0 : -1);
  job.master_port = TUTTI_TRY(number("--master-port", texts.master_port, 1, 65535));
  job.store_port = TUTTI_TRY(number("--store-port", texts.store_port, 1, 65535));
  job.connect_timeout = TUTTI_TRY(duration("--connect-timeout", texts.connect_timeout));
  if (job.connect_timeout <= Duration(0))
    return usage("--connect-timeout 0 leaves the nodes no time to meet", "for example 5min, which is the default");
  if (by_number && !job.rendezvous.endpoint.empty()) {  // it beats the master's address and port, as with torchrun
    const transport::Address place = TUTTI_TRY(transport::parse_address(job.rendezvous.endpoint));
    job.master_address = place.host;
    if (place.port != 0) job.master_port = place.port;
  }
  return {};
}

void declare_ssh(const Group& add, SshTexts& texts) {
  add.value("-H,--hosts", texts.hosts, "a:8,b:2",
            "start the job on these hosts over ssh, with this many ranks on each");
  add.value("--hostfile", texts.hostfile, "FILE", "read the hosts from a file with lines 'HOST slots=N'");
  add.value("--ssh", texts.shell, "COMMAND", "run COMMAND HOST ... instead of ssh, for example 'ssh -p 2222'");
  add.values("-x,--export", texts.variables, "NAME[=VALUE]",
             "set a variable on all hosts (TUTTI_... and PET_... are always passed on)");
}

void declare_output(const Group& add, OutputTexts& texts, launch::JobOptions& job) {
  add.value("--log-dir", job.output.log_dir, "DIR", "also write DIR/<job>/attempt_0/rank_<r>/{stdout,stderr}.log");
  add.value("--only-ranks", texts.only_ranks, "LIST", "show only these ranks here, for example 0,2,5-7");
  add.value("--quiet-ranks", texts.quiet_ranks, "LIST", "do not show these ranks here");
  add.value(
      "-r,--redirects", texts.redirects, "WHICH",
      "streams that go to the log files only: 0 none (default), 1 stdout, 2 stderr, 3 both; for all ranks, or by local "
      "rank: 0:3,2:1");
  add.value("-t,--tee", texts.tee, "WHICH",
            "streams that go to the terminal and the log files, whatever --redirects says (0)");
  add.value("--local-ranks-filter", texts.only_local_ranks, "LIST", "show only these local ranks of each node here");
  add.value("--show", texts.show, "STREAMS", "streams to show here: all (default), stdout, stderr or none");
  add.value(
      "--level", texts.level, "LEVEL",
      "show only lines of this level or above: debug, info, warn, error; a line without a level counts as info, on "
      "stderr as warn");
  add.value("--log-format", texts.format, "FORMAT",
            "format of lines here: text (default), or json with time, rank, stream and level");
  add.flag("--no-prefix", texts.no_prefix, "print bytes unchanged, without [rank] before each line");
  add.value("--log-line-prefix-template", job.output.prefix_template, "TEXT",
            "print TEXT before each line instead of [rank]; ${role_name}, ${rank}, ${local_rank} and ${hostname} are "
            "replaced");
  add.flag("-q,--quiet", texts.quiet, "print no line about the job at its start");
}

Status interpret_output(const OutputTexts& texts, launch::JobOptions& job) {
  if (!texts.only_ranks.empty())
    job.output.only_ranks = TUTTI_TRY(launch::parse_ranks(texts.only_ranks, "--only-ranks"));
  if (!texts.quiet_ranks.empty())
    job.output.quiet_ranks = TUTTI_TRY(launch::parse_ranks(texts.quiet_ranks, "--quiet-ranks"));
  if (!texts.only_local_ranks.empty())
    job.output.only_local_ranks = TUTTI_TRY(launch::parse_ranks(texts.only_local_ranks, "--local-ranks-filter"));
  if (!texts.redirects.empty()) job.output.redirects = TUTTI_TRY(launch::parse_streams(texts.redirects, "--redirects"));
  if (!texts.tee.empty()) job.output.tee = TUTTI_TRY(launch::parse_streams(texts.tee, "--tee"));
  job.output.prefix = !texts.no_prefix;
  if (texts.show != "all" && texts.show != "stdout" && texts.show != "stderr" && texts.show != "none")
    return usage("--show needs all, stdout, stderr or none, not '" + texts.show + "'", "");
  job.output.show_output = texts.show == "all" || texts.show == "stdout";
  job.output.show_errors = texts.show == "all" || texts.show == "stderr";
  if (!texts.level.empty()) job.output.level = TUTTI_TRY(launch::parse_line_level(texts.level, "--level"));
  if (texts.format != "text" && texts.format != "json")
    return usage("--log-format needs text or json, not '" + texts.format + "'", "");
  job.output.json = texts.format == "json";
  if (job.output.prefix_template.empty() && job.output.prefix && !job.output.json)
    job.output.prefix_template = env("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE").value_or("");  // torchrun's only way
  TUTTI_TRY(launch::check_output(job.output));
  job.announce = !texts.quiet;
  return {};
}

void declare_speed(const Group& add, SpeedTexts& texts) {
  add.flag("--no-tune", texts.no_tune, "do not set OMP_*, OPENBLAS_* and GLIBC_TUNABLES");
  add.flag("--keep-memory", texts.keep_memory,
           "set MALLOC_*: the program keeps freed memory, to allocate it again each step (train_image, train_dlrm and "
           "pretrain_gpt do so without this option)");
}

Status interpret_speed(const SpeedTexts& texts, launch::JobOptions& job) {
  job.tune = !texts.no_tune;
  job.keep_memory = texts.keep_memory;
  return {};
}

void declare_watching(const Group& add, WatchingTexts& texts, launch::JobOptions& job) {
  add.value("--hang-timeout", texts.hang_timeout, "TIME",
            "end the job, with the stacks of all ranks, when no rank makes progress for this long; 0: never (default: "
            "learned from the steps that ranks report, at least 5min)");
  add.value("--report", job.report_file, "FILE", "write to FILE, as JSON, how the job ended (on every node)");
  add.value("--node-timeout", texts.node_timeout, "TIME", "a node that is silent for this long is lost (2.5s)");
}

Status interpret_watching(const WatchingTexts& texts, launch::JobOptions& job) {
  if (!texts.hang_timeout.empty()) job.monitor.hang_timeout = TUTTI_TRY(duration("--hang-timeout", texts.hang_timeout));
  job.node_timeout = TUTTI_TRY(duration("--node-timeout", texts.node_timeout));
  return {};
}

void declare_healing(const Group& add, HealingTexts& texts) {
  add.value("--max-restarts", texts.max_restarts, "N", "restart all ranks after a failure, at most N times (0)");
  add.value("--restart-pause", texts.restart_pause, "TIME",
            "pause before a restart; doubles, up to 1 min, while the job makes no progress (100ms)");
  add.value("--no-progress", texts.no_progress, "N",
            "end the job with code 93 after N failures in a row in the same place; 0: never (3)");
}

Status interpret_healing(const HealingTexts& texts, launch::JobOptions& job) {
  job.restarts.most = int(TUTTI_TRY(whole_number("--max-restarts", texts.max_restarts, 0, 1000000)));
  job.restarts.first_pause = TUTTI_TRY(duration("--restart-pause", texts.restart_pause));
  job.restarts.same_place = int(TUTTI_TRY(whole_number("--no-progress", texts.no_progress, 0, 1000000)));
  return {};
}

void declare_ending(const Group& add, EndingTexts& texts) {
  add.value("--grace,--shutdown-timeout", texts.grace, "TIME", "time from SIGTERM to SIGKILL after a rank failed (5s)");
  add.value("--signal-grace", texts.signal_grace, "TIME",
            "time from SIGTERM to SIGKILL after Ctrl-C or SIGTERM, in which ranks can save (30s)");
  add.value("--timeout", texts.time_limit, "TIME", "end the job after this long; 0: never (default)");
}

Status interpret_ending(const EndingTexts& texts, launch::JobOptions& job) {
  job.grace = TUTTI_TRY(duration("--grace", texts.grace));
  job.signal_grace = TUTTI_TRY(duration("--signal-grace", texts.signal_grace));
  if (texts.time_limit.empty()) return {};
  const Duration limit = TUTTI_TRY(duration("--timeout", texts.time_limit));
  if (limit > Duration(0)) job.time_limit = limit;
  return {};
}

Status interpret_program(const RunTexts& texts, std::vector<std::string> rest, launch::JobOptions& job) {
  if (!texts.elsewhere.empty()) {
    const auto* const option = std::find_if(std::begin(kElsewhere), std::end(kElsewhere),
                                            [&](const Elsewhere& known) { return known.name == texts.elsewhere; });
    return usage("torchrun's --" + texts.elsewhere + " has no meaning for tutti run: " + option->why,
                 "drop it; docs/how-to/migrate-from-torchrun.md lists torchrun's options");
  }
  if (!rest.empty() && rest[0] == "--") rest.erase(rest.begin());
  if (rest.empty()) return not_given("program", kRunSynopsis, "tutti run -n 4 ./train --epochs 3");
  if (rest[0].starts_with('-'))
    return usage("'" + rest[0] + "' stands where the program should", "options of tutti run come before the --");
  if (const auto count = parse_int(rest[0]); count && *count > 0 && rest.size() > 1 && texts.ranks.ranks.empty())
    return usage("'" + rest[0] + "' stands where the program should",
                 "tutti run -n " + rest[0] + " " + rest[1] + " ...");
  job.program = rest[0];
  job.arguments.assign(rest.begin() + 1, rest.end());
  return {};
}

}  // namespace

void declare(CLI::App& app, RunTexts& texts, launch::JobOptions& job) {
  app.prefix_command();
  set_help(app, kRunFooter, kRunSynopsis);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  declare_ranks(Group(app, "Ranks"), texts.ranks, job);
  declare_places(Group(app, "Places"), texts.places, job);
  declare_nodes(Group(app, "Several nodes"), texts.nodes, job);
  declare_ssh(Group(app, "Other hosts over ssh"), texts.ssh);
  declare_output(Group(app, "Output"), texts.output, job);
  declare_speed(Group(app, "Speed"), texts.speed);
  declare_watching(Group(app, "Watching"), texts.watching, job);
  declare_healing(Group(app, "Healing"), texts.healing);
  declare_ending(Group(app, "Ending"), texts.ending);
  for (const Elsewhere& option : kElsewhere) {
    app.add_option_function<std::string>(both_spellings("--" + std::string(option.name)),
                                         [&texts, name = option.name](const std::string&) { texts.elsewhere = name; })
        ->group("")  // not in the help
        ->expected(0, 1);
  }
  for (const WithoutEffect& option : kWithoutEffect) {
    const auto given = [&texts, name = option.name] { texts.without_effect.push_back("--" + std::string(name)); };
    const std::string names = both_spellings("--" + std::string(option.name));
    if (option.takes_value) {
      app.add_option_function<std::string>(names, [given](const std::string&) { given(); })->group("");
    } else {
      app.add_flag_callback(names, given)->group("");
    }
  }
  for (const char* name : kTorchrunOptions) {
    if (CLI::Option* const option = app.get_option_no_throw("--" + std::string(name)))
      option->envname(variable_of(name));
  }
}

namespace {

// A variable may be there for other programs, so it is no mistake as the option would be.
void warn_of_unused_options(const RunTexts& texts, const launch::JobOptions& job) {
  std::vector<std::string> without_effect = texts.without_effect;
  for (const WithoutEffect& option : kWithoutEffect)
    if (env(variable_of(option.name))) without_effect.push_back(variable_of(option.name));
  const auto& keys = job.rendezvous.without_effect;
  without_effect.insert(without_effect.end(), keys.begin(), keys.end());
  if (!without_effect.empty())
    log::warn(join(without_effect, ", ") + (without_effect.size() == 1 ? " changes" : " change") +
              " nothing for tutti run (docs/how-to/migrate-from-torchrun.md lists torchrun's options)");
  for (const Elsewhere& option : kElsewhere)
    if (env(variable_of(option.name)))
      log::warn(variable_of(option.name) + " has no meaning for tutti run: " + option.why);
}

Status interpret_groups(const RunTexts& texts, std::vector<std::string> rest, launch::JobOptions& job) {
  TUTTI_TRY(interpret_program(texts, std::move(rest), job));
  TUTTI_TRY(interpret_ranks(texts.ranks, job));
  TUTTI_TRY(interpret_places(texts.places, job));
  TUTTI_TRY(interpret_nodes(texts.nodes, job));
  warn_of_unused_options(texts, job);
  TUTTI_TRY(interpret_output(texts.output, job));
  TUTTI_TRY(interpret_speed(texts.speed, job));
  TUTTI_TRY(interpret_watching(texts.watching, job));
  TUTTI_TRY(interpret_healing(texts.healing, job));
  return interpret_ending(texts.ending, job);
}

}  // namespace

Status check_flag_variables() {
  for (const char* option : kTorchrunFlags) TUTTI_TRY(env_flag(variable_of(option), false));
  return {};
}

Error with_source(Error error) {
  for (const char* option : kTorchrunOptions) {
    const auto value = env(variable_of(option));
    if (!value || value->empty() || error.detail.find(*value) == std::string::npos) continue;
    const auto* const other = std::find_if(std::begin(kOtherNames), std::end(kOtherNames),
                                           [&](const auto& names) { return names.first == std::string_view(option); });
    const std::string name = other == std::end(kOtherNames) ? "--" + std::string(option) : other->second;
    if (error.detail.find(name) == std::string::npos) continue;
    error.hint += (error.hint.empty() ? "" : "; ") + variable_of(option) + " is '" + *value + "' in the environment";
  }
  return error;
}

Status interpret(const RunTexts& texts, std::vector<std::string> rest, launch::JobOptions& job) {
  return interpret_groups(texts, std::move(rest), job);
}

}  // namespace tutti::cli
