#include "apps/tutti/bench_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/options/help_text.h"
#include "apps/tutti/not_empty.h"
#include "bench/collectives/groups.h"
#include "tutti/base/text.h"
#include "tutti/comm/backends/load.h"
#include "tutti/comm/kernels/reduce.h"
#include "tutti/comm/links/select.h"
#include "tutti/comm/plans/plan.h"

namespace tutti::cli {
namespace {

constexpr const char* kBenchSynopsis = "tutti bench OP [OPTIONS]";
constexpr const char* kBenchFooter = R"(
bytes is the whole vector on a rank. all_gather, gather, scatter, reduce_scatter and all_to_all split it in one part per
rank, of whole elements; the bytes beyond these are not measured. A ping_pong is there and back.

Columns:
  us        median over the rounds of the slowest rank's mean time of a call
  p50, p99  of calls that are timed one by one
  algbw     bytes / time
  busbw     algbw times the factor of nccl-tests
  of limit  share of what memory (a += k * b on all cores, in the same run) or, between hosts, one TCP stream reaches
  wrong     elements of the result with a wrong value

Examples:
  tutti bench all_reduce -n 2
  tutti bench all -n 4 --json > figures.jsonl
  tutti bench all_to_all -n 4 --groups even_odd --dtype bf16 --sizes 64K,1M
  tutti bench all_reduce -n 2 --peers --plot all_reduce.svg    in turn with Open MPI and Gloo
  tutti bench --peers    the table of all targets, in minutes
  tutti bench --peers --only "private memory" --quick
  tutti bench all_reduce -n 4 --two-hosts    between two network namespaces
  mpirun -H a,b tutti bench all_reduce    on several hosts

Exit codes:
  0      measured; with the table of targets: all are met
  1      a result was wrong, or a target was not met
  2      wrong usage, or no size was large enough for an operation (its JSON line has "not_measured")
  other  the code of the failed rank: 4 when a deadline passed, 128 + the signal that killed it)";

Result<std::size_t> bytes(const std::string& option, const std::string& text, std::size_t least) {
  const auto value = parse_bytes(text);
  if (!value || *value < least || *value > (std::uint64_t(1) << 40))
    return usage(option + " needs a size from " + std::to_string(least) +
                 " bytes to 1 TiB, such as 4096, 64K or 16M, not '" + text + "'");
  return std::size_t(*value);
}

Status check_algorithm(comm::Algorithm algorithm, const bench::Operation& operation) {
  std::vector<std::string> implemented;
  for (int other = 0; other <= int(comm::kLastAlgorithm); ++other)
    if (comm::implements(comm::Algorithm(other), operation.kind))
      implemented.emplace_back(name(comm::Algorithm(other)));
  if (std::find(implemented.begin(), implemented.end(), name(algorithm)) != implemented.end()) return {};
  return usage(std::string("there is no ") + name(algorithm) + " for " + operation.name,
               implemented.empty() ? "it has no plans to choose from" : "known: " + join(implemented, ", "));
}

Result<std::vector<std::size_t>> sizes_of(const BenchTexts& texts) {
  if (texts.sizes.empty()) {
    const std::size_t least = TUTTI_TRY(bytes("--min", texts.least, 1));
    return bench::sizes(least, TUTTI_TRY(bytes("--max", texts.most, least)));
  }
  std::vector<std::size_t> sizes;
  for (const std::string& text : split(texts.sizes, ',')) sizes.push_back(TUTTI_TRY(bytes("--sizes", text, 1)));
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

bool has_elements(const bench::Operation& operation) {
  return operation.has_bytes() && operation.form != bench::Form::kBytes && operation.form != bench::Form::kJson;
}

// What was said of something that none of the operations has.
Status check_applies(const BenchTexts& texts, const std::vector<const bench::Operation*>& operations) {
  const auto any = [&](auto has) {
    return std::any_of(operations.begin(), operations.end(), [&](const auto* operation) { return has(*operation); });
  };
  const auto has_none = [&](const std::string& option, const char* what) {
    return usage(texts.operation + " has no " + what, "drop " + option);
  };
  const BenchTexts none;
  if (texts.op != none.op && !any([](const auto& operation) { return operation.reduces(); }))
    return usage(texts.operation + " adds nothing up", "drop --op " + texts.op);
  if (texts.dtype != none.dtype && !any(has_elements)) return has_none("--dtype " + texts.dtype, "elements");
  if (any([](const auto& operation) { return operation.has_bytes(); })) return {};
  if (!texts.sizes.empty()) return has_none("--sizes", "bytes");
  if (texts.least != none.least) return has_none("--min", "bytes");
  if (texts.most != none.most) return has_none("--max", "bytes");
  return {};
}

// Other engines have ways and algorithms of their own.
Status check_way(const BenchTexts& texts, bool on_gpu) {
  const auto engines = TUTTI_TRY(comm::chosen_engines(texts.engine == "nccl" ? "cuda:nccl" : texts.engine));
  const std::string carrier = on_gpu && engines.cuda == "nccl" ? engines.cuda : engines.cpu;
  if (carrier == "tutti") return {};
  const BenchTexts none;
  const auto refused = [&](const std::string& option) {
    return usage(option + " is for the engine tutti, and the bytes are moved by " + carrier,
                 texts.engine.empty() ? "drop it, or unset TUTTI_ENGINE" : "drop one of the two");
  };
  if (texts.algorithm != none.algorithm) return refused("--algorithm " + texts.algorithm);
  if (!texts.transport.empty() && texts.transport != "auto") return refused("--transport " + texts.transport);
  return comm::check_heeded(engines, texts.transport);
}

// Sizes that the user named, of elements. Our own are left out where they hold none.
Status check_whole_elements(const BenchTexts& texts, const bench::BenchOptions& options) {
  if (std::none_of(options.operations.begin(), options.operations.end(),
                   [](const auto* o) { return has_elements(*o); }))
    return {};
  const std::size_t width = size_of(options.dtype);
  const auto check = [&](const char* option, std::size_t size) -> Status {
    if (size % width == 0) return {};
    return usage(std::string(option) + ": " + std::to_string(size) + " bytes are no whole number of " +
                     name(options.dtype) + ", of " + std::to_string(width) + " bytes each",
                 std::to_string((size + width - 1) / width * width) + ", for example");
  };
  const BenchTexts none;
  if (texts.sizes.empty()) {
    if (texts.least != none.least) TUTTI_TRY(check("--min", options.sizes.front()));
    return texts.most != none.most ? check("--max", options.sizes.back()) : Status();
  }
  for (const std::size_t size : options.sizes) TUTTI_TRY(check("--sizes", size));
  return {};
}

Result<std::vector<const bench::Operation*>> operations_of(const BenchTexts& texts) {
  std::vector<std::string> names;
  for (const bench::Operation& operation : bench::operations()) names.emplace_back(operation.name);
  names.emplace_back("all");
  if (texts.operation.empty()) return not_given("operation", kBenchSynopsis, "tutti bench all_reduce -n 2");
  std::vector<const bench::Operation*> chosen;
  for (const std::string& text : split(texts.operation, ',')) {
    const std::size_t place = TUTTI_TRY(choose("operation", text, names));
    for (std::size_t i = 0; i < bench::operations().size(); ++i)
      if (i == place || text == "all") chosen.push_back(&bench::operations()[i]);
  }
  return chosen;
}

}  // namespace

void declare(CLI::App& app, BenchTexts& texts) {
  std::vector<std::string> names;
  for (const bench::Operation& operation : bench::operations()) names.emplace_back(operation.name);
  set_help(app, kBenchFooter, kBenchSynopsis);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("OP", texts.operation, join(names, ", ") + "; several with commas, or all")->type_name("");
  const auto add = [&](const char* group, const char* names, std::string& target, const char* words, const char* type) {
    app.add_option(names, target, words)->group(group)->type_name(type)->check(kNotEmpty);
  };
  const auto add_flag = [&](const char* group, const char* name, bool& target, const char* words) {
    app.add_flag(name, target, words)->group(group);
  };
  add("Ranks", "-n,--ranks", texts.ranks,
      "start this many ranks on this host; without it the process joins the world that its environment describes", "N");
  add("Ranks", "--groups", texts.groups,
      "groups that measure at the same time: world (default), halves, pairs, even_odd, or lists of ranks (0,2/1,3)",
      "GROUPS");
  add_flag("Ranks", "--two-hosts", texts.two_hosts,
           "start half of the ranks in each of two network namespaces of this machine, joined by a cable (veth)");

  add_flag("Ranks", "--pin", texts.pin, "bind each rank to a core (default if there are enough cores)");
  add_flag("Ranks", "--no-pin", texts.no_pin, "do not bind ranks to cores");
  add("What is measured", "--min", texts.least, "smallest size (8)", "BYTES");
  add("What is measured", "--max", texts.most, "largest size (64M)", "BYTES");
  add("What is measured", "--sizes", texts.sizes, "sizes to measure instead: 8,4K,1M", "LIST");
  add("What is measured", "--dtype", texts.dtype, "f32 (default), f64, f16, bf16, i8, u8, i32, i64, bool, c64, c128",
      "TYPE");
  add("What is measured", "--op", texts.op, "sum (default), avg, product, min, max, band, bor, bxor, premul_sum", "OP");
  add("What is measured", "--memory", texts.memory,
      "heap (default): Group::allocate(); private: the process's own; cuda: a GPU's", "KIND");
  add_flag("What is measured", "--rewrite", texts.rewrite,
           "each rank reads and writes its buffer before every call, outside of the measured time");
  add("The way", "--engine", texts.engine, "tutti, gloo, mpi, nccl (default: TUTTI_ENGINE, else tutti)", "NAME");
  add("The way", "--transport", texts.transport, "auto, shm, tcp (default: TUTTI_TRANSPORT, else auto)", "WAY");
  add("The way", "--algorithm", texts.algorithm,
      "auto (default), ring, recursive_doubling, ...: plans over links instead of the direct path", "NAME");
  add_flag("Peers", "--peers", texts.peers,
           "run Open MPI and Gloo in turn with tutti; without OP: the whole table of targets");
  add("Peers", "--against", texts.against,
      "only these peers: mpi, mpi_default, gloo, bare; between two hosts: bare_wire, iperf3", "LIST");
  add("Peers", "--congestion", texts.congestion,
      "congestion control of the peers' sockets between two hosts, such as cubic (the system's)", "NAME");
  add("Peers", "--turns", texts.turns, "how often each entrant runs (5)", "K");
  add("Peers", "--only", texts.only, "only the lines of the table that contain this text", "TEXT");
  add_flag("Peers", "--quick", texts.quick, "3 turns of 3 rounds: a rough result, soon");
  add("Peers", "--plot", texts.plot, "draw time against size, the peers and the limit, with gnuplot: .svg or .png",
      "FILE");
  add("Method and output", "--rounds", texts.rounds, "measured rounds (7)", "K");
  add("Method and output", "--warm-up", texts.warm_up, "rounds before these that are not measured (1)", "K");
  add_flag("Method and output", "--json", texts.json, "print a line of JSON for each size");
  app.add_flag("--as-rank", texts.as_rank)->group("");
  app.add_flag("--progress", texts.progress)->group("");
}

Result<int> ranks_of(const BenchTexts& texts, int otherwise) {
  if (texts.ranks.empty()) return otherwise;
  return int(TUTTI_TRY(whole_number("-n", texts.ranks, 1, 4096)));
}

Result<bench::Method> interpret_method(const BenchTexts& texts) {
  bench::Method method{.rewrite = texts.rewrite};
  if (texts.quick) method.rounds = 3;
  if (!texts.rounds.empty()) method.rounds = int(TUTTI_TRY(whole_number("--rounds", texts.rounds, 1, 1000)));
  method.warm_up = int(TUTTI_TRY(whole_number("--warm-up", texts.warm_up, 0, 1000)));
  return method;
}

Result<bench::BenchOptions> interpret_bench(const BenchTexts& texts) {
  bench::BenchOptions options;
  options.operations = TUTTI_TRY(operations_of(texts));
  TUTTI_TRY(check_applies(texts, options.operations));
  std::vector<std::string> dtypes, ops, algorithms = comm::algorithm_names();
  for (DType dtype : kDTypes) dtypes.emplace_back(name(dtype));
  options.dtype = kDTypes[TUTTI_TRY(choose("dtype", texts.dtype, dtypes))];
  for (ReduceOp op : kReduceOps) ops.emplace_back(name(op));
  options.op = ReduceOp(TUTTI_TRY(choose("--op", texts.op, ops)));
  for (const bench::Operation* operation : options.operations)
    if (operation->reduces()) TUTTI_TRY(comm::check_reduction(options.dtype, options.op));
  algorithms.insert(algorithms.begin(), "auto");
  if (const std::size_t place = TUTTI_TRY(choose("algorithm", texts.algorithm, algorithms)); place > 0) {
    options.algorithm = texts.algorithm;
    // For several the column "plan" shows who has it.
    for (const bench::Operation* operation : options.operations)
      if (options.operations.size() == 1) TUTTI_TRY(check_algorithm(comm::Algorithm(place - 1), *operation));
  }
  options.memory =
      bench::BenchOptions::Memory(TUTTI_TRY(choose("--memory", texts.memory, {"heap", "private", "cuda"})));
  if (!texts.transport.empty()) (void)TUTTI_TRY(choose("transport", texts.transport, {"auto", "shm", "tcp"}));
  options.transport = texts.transport;
  if (!texts.engine.empty()) (void)TUTTI_TRY(choose("engine", texts.engine, {"tutti", "gloo", "mpi", "nccl"}));
  const bool on_gpu = options.memory == bench::BenchOptions::Memory::kCuda;
  if (texts.engine == "nccl" && !on_gpu) return usage("the engine nccl carries GPU memory: it goes with --memory cuda");
  if (on_gpu && texts.rewrite) return usage("--rewrite is for memory of the host, not for --memory cuda");
  TUTTI_TRY(check_way(texts, on_gpu));
  options.engine = texts.engine == "nccl" ? "cuda:nccl" : texts.engine;
  if (!texts.ranks.empty()) (void)TUTTI_TRY(bench::groups_of(texts.groups, TUTTI_TRY(ranks_of(texts, 1))));
  options.groups = texts.groups;
  options.sizes = TUTTI_TRY(sizes_of(texts));
  TUTTI_TRY(check_whole_elements(texts, options));
  options.method = TUTTI_TRY(interpret_method(texts));
  if (texts.pin && texts.no_pin) return usage("--pin and --no-pin contradict one another");
  options.pin = !texts.no_pin;
  options.json = texts.json;
  options.progress = texts.progress;
  options.is_started = texts.as_rank && texts.engine != "mpi";  // mpirun's exit code is that of the ranks
  return options;
}

Result<bench::CompareOptions> interpret_comparison(const BenchTexts& texts) {
  bench::CompareOptions options{.turns = texts.quick ? 3 : 5, .json = texts.json, .plot = texts.plot};
  if (!texts.turns.empty()) options.turns = int(TUTTI_TRY(whole_number("--turns", texts.turns, 1, 1000)));
  if (!texts.peers) return options;
  options.all_must_be_here = !texts.against.empty();
  if (!texts.against.empty()) {
    for (const std::string& key : split(texts.against, ',')) {
      (void)TUTTI_TRY(choose("peer", key, bench::rival_keys()));
      options.rivals.push_back(key);
    }
  } else {
    options.rivals = texts.is_table() ? std::vector<std::string>{"mpi", "gloo", "bare", "bare_wire", "iperf3"}
                                      : std::vector<std::string>{"mpi", "gloo"};
  }
  if (!texts.is_table()) return options;
  if (!texts.plot.empty())
    return usage("--plot draws one operation", "name it: tutti bench all_reduce --peers --plot FILE");
  const BenchTexts none;
  if (!texts.ranks.empty() || !texts.sizes.empty() || texts.least != none.least || texts.most != none.most ||
      texts.memory != none.memory || texts.rewrite || texts.two_hosts || texts.dtype != none.dtype ||
      texts.groups != none.groups || !texts.engine.empty())
    return usage("the table of targets sets its own ranks, sizes and buffers",
                 "name an operation, or choose lines with --only TEXT");
  return options;
}

namespace {

// Bytes of whole elements, as `ranks` of a group measure them in a vector of `size`.
std::size_t whole_bytes(const bench::Operation& operation, DType dtype, std::size_t size, int ranks) {
  const std::size_t width =
      (has_elements(operation) ? size_of(dtype) : 1) * (operation.splits ? std::size_t(ranks) : 1);
  return size - size % width;
}

}  // namespace

Result<bool> check_sizes(const bench::BenchOptions& options, int ranks) {
  const auto groups = TUTTI_TRY(bench::groups_of(options.groups, ranks));
  const auto measured = [&](const bench::Operation& operation, const std::vector<int>& group) {
    return !operation.has_bytes() || whole_bytes(operation, options.dtype, options.sizes.back(), int(group.size())) > 0;
  };
  const auto with_a_size =
      std::count_if(options.operations.begin(), options.operations.end(), [&](const auto* operation) {
        return std::any_of(groups.begin(), groups.end(),
                           [&](const auto& group) { return measured(*operation, group); });
      });
  if (with_a_size > 0) return with_a_size == std::ptrdiff_t(options.operations.size());
  return usage("no size up to " + bytes_text(options.sizes.back()) + " holds an element of " +
                   std::string(name(options.dtype)) + " for each rank",
               "larger ones: --sizes 4K,1M, or --max 1M");
}

Result<bench::Task> interpret_task(const BenchTexts& texts, const bench::BenchOptions& options) {
  if (options.operations.size() != 1)
    return usage("--peers and --plot take one operation at a time, not " + texts.operation);
  const BenchTexts none;
  if (texts.peers && (texts.dtype != none.dtype || texts.op != none.op || texts.groups != none.groups))
    return usage("the peers measure sums of f32 in one group of all ranks",
                 "drop --peers, or --dtype, --op and --groups");
  if (options.memory == bench::BenchOptions::Memory::kCuda)
    return usage("--peers and --plot measure memory of the host", "drop --memory cuda");
  bench::Task task{.ranks = TUTTI_TRY(ranks_of(texts, 2)),
                   .method = options.method,
                   .private_memory = options.memory == bench::BenchOptions::Memory::kPrivate,
                   .two_hosts = texts.two_hosts,
                   .congestion = texts.congestion};
  const bench::Operation& operation = *options.operations[0];
  for (const std::size_t size : options.sizes) {
    const std::size_t whole = whole_bytes(operation, options.dtype, size, task.ranks);
    if (operation.has_bytes() && whole > 0) task.items.push_back({operation.name, whole});
  }
  if (!operation.has_bytes()) task.items.push_back({operation.name, 0});
  if (task.items.empty()) return usage("no size holds an element for each rank", "a larger --max");
  const auto hand_on = [&](const char* option, const std::string& text, const std::string& usual) {
    if (text != usual) task.our_words.insert(task.our_words.end(), {option, text});
  };
  hand_on("--dtype", texts.dtype, none.dtype);
  hand_on("--op", texts.op, none.op);
  hand_on("--groups", texts.groups, none.groups);
  hand_on("--engine", texts.engine, none.engine);
  hand_on("--transport", texts.transport, none.transport);
  hand_on("--algorithm", texts.algorithm, none.algorithm);
  if (texts.no_pin) task.our_words.emplace_back("--no-pin");
  return task;
}

}  // namespace tutti::cli
