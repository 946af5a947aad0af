// tutti bench: with -n it starts its ranks, which are this same program once more; without, it is a rank of the world
// that the environment tells of (tutti run, mpirun, srun, torchrun), which may span several hosts.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <climits>
#include <cstdio>

#include "apps/tutti/command.h"
#include "bench/collectives/run.h"
#include "tutti/base/text.h"
#include "tutti/comm/kernels/reduce.h"
#include "tutti/comm/select.h"
#include "tutti/launch/agent.h"
#include "tutti/launch/job.h"
#include "tutti/planning/collectives/plan.h"

namespace tutti::cli {
namespace {

constexpr const char* kFooter = R"(
Columns: us is the median of the rounds, a round's figure the slowest rank's mean of many calls in a row; p99 is of calls timed one by one;
algbw is bytes / time; busbw is algbw times the factor of nccl-tests; wrong counts elements of the result that are not what they must be.
bytes is the whole vector on a rank: all_gather, gather, scatter, reduce_scatter and all_to_all split it in one part a rank.

Examples:
  tutti bench all_reduce -n 2
  tutti bench all -n 4 --json > figures.jsonl
  several hosts:  mpirun -H a,b tutti bench all_reduce     (without -n: a rank of the world that is there)

Exit codes: 0 measured; 1 a rank failed or a result was wrong; 2 wrong usage, or no size was large enough.)";

// The options as text; bench::BenchOptions holds what they mean.
struct Texts {
  std::string operation, ranks, least = "8", most = "64M";
  std::string dtype = "f32", op = "sum", memory = "heap", transport, algorithm = "auto";
  std::string rounds = "7", warm_up = "1";
  bool json = false, no_pin = false, pin = false;
  bool as_rank = false, progress = false;  // said to the ranks that -n starts
};

void declare(CLI::App& app, Texts& texts) {
  app.set_help_flag("-h,--help", "this text");
  app.footer(kFooter);
  app.get_formatter()->column_width(34);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("OP", texts.operation,
                 "all_reduce, reduce, broadcast, all_gather, gather, scatter, reduce_scatter, all_to_all, barrier, "
                 "send_recv, or all")
      ->type_name("");
  const auto add = [&](const char* group, const char* names, std::string& target, const char* words, const char* type) {
    app.add_option(names, target, words)->group(group)->type_name(type);
  };
  const auto add_flag = [&](const char* group, const char* name, bool& target, const char* words) {
    app.add_flag(name, target, words)->group(group);
  };
  add("Ranks", "-n,--ranks", texts.ranks, "start this many ranks here; without it: be a rank of the world around", "N");
  add_flag("Ranks", "--pin", texts.pin, "bind each rank to a core (default where there are enough)");
  add_flag("Ranks", "--no-pin", texts.no_pin, "leave the ranks where the system puts them");
  add("What is measured", "--min", texts.least, "least bytes (8)", "BYTES");
  add("What is measured", "--max", texts.most, "most bytes (64M)", "BYTES");
  add("What is measured", "--dtype", texts.dtype, "f32 (default), f64, f16, bf16, i8, u8, i32, i64, bool", "TYPE");
  add("What is measured", "--op", texts.op, "sum (default), avg, product, min, max, band, bor, bxor", "OP");
  add("What is measured", "--memory", texts.memory, "heap (default): Group::allocate(); private: the process's own",
      "KIND");
  add("The way", "--transport", texts.transport, "auto, shm, tcp (default: TUTTI_TRANSPORT, else auto)", "WAY");
  add("The way", "--algorithm", texts.algorithm,
      "auto (default), ring, recursive_doubling, ...: plans over links instead of the direct path", "NAME");
  add("Method and output", "--rounds", texts.rounds, "rounds that count (7)", "K");
  add("Method and output", "--warm-up", texts.warm_up, "rounds before them that do not (1)", "K");
  add_flag("Method and output", "--json", texts.json, "a line of JSON for each size");
  app.add_flag("--as-rank", texts.as_rank)->group("");
  app.add_flag("--progress", texts.progress)->group("");
}

Result<std::size_t> bytes(const std::string& option, const std::string& text, std::size_t least) {
  const auto value = parse_bytes(text);
  if (!value || *value < least || *value > (std::uint64_t(1) << 40)) {
    return usage(option + " needs a size of at least " + std::to_string(least) +
                 " bytes such as 4096, 64K or 16M, not '" + text + "'");
  }
  return std::size_t(*value);
}

Status check_algorithm(Algorithm algorithm, const bench::Operation& operation) {
  std::vector<std::string> implemented;
  for (int other = 0; other <= int(kLastAlgorithm); ++other)
    if (implements(Algorithm(other), operation.kind)) implemented.emplace_back(name(Algorithm(other)));
  if (std::find(implemented.begin(), implemented.end(), name(algorithm)) != implemented.end()) return {};
  return usage(std::string("there is no ") + name(algorithm) + " for " + operation.name,
               implemented.empty() ? "it has no plans to choose from" : "known: " + join(implemented, ", "));
}

Result<bench::BenchOptions> interpret(const Texts& texts) {
  bench::BenchOptions options;
  std::vector<std::string> names, dtypes, ops, algorithms = algorithm_names();
  for (const bench::Operation& operation : bench::operations()) names.emplace_back(operation.name);
  names.emplace_back("all");
  if (texts.operation.empty()) return usage("which operation?", "one of " + join(names, ", "));
  const std::size_t chosen = TUTTI_TRY(choose("operation", texts.operation, names));
  for (std::size_t i = 0; i < bench::operations().size(); ++i)
    if (i == chosen || texts.operation == "all") options.operations.push_back(&bench::operations()[i]);

  for (DType dtype : kDTypes) dtypes.emplace_back(name(dtype));
  options.dtype = kDTypes[TUTTI_TRY(choose("dtype", texts.dtype, dtypes))];
  for (ReduceOp op : kReduceOps) ops.emplace_back(name(op));
  options.op = ReduceOp(TUTTI_TRY(choose("--op", texts.op, ops)));
  for (const bench::Operation* operation : options.operations)
    if (operation->reduces) TUTTI_TRY(check_reduction(options.dtype, options.op));
  algorithms.insert(algorithms.begin(), "auto");
  if (const std::size_t place = TUTTI_TRY(choose("algorithm", texts.algorithm, algorithms)); place > 0) {
    options.algorithm = texts.algorithm;
    // For `all` the column "plan" shows who has it.
    for (const bench::Operation* operation : options.operations)
      if (options.operations.size() == 1) TUTTI_TRY(check_algorithm(Algorithm(place - 1), *operation));
  }
  options.memory = bench::BenchOptions::Memory(TUTTI_TRY(choose("--memory", texts.memory, {"heap", "private"})));
  if (!texts.transport.empty()) (void)TUTTI_TRY(choose("transport", texts.transport, {"auto", "shm", "tcp"}));
  options.transport = texts.transport;

  options.least = TUTTI_TRY(bytes("--min", texts.least, 1));
  options.most = TUTTI_TRY(bytes("--max", texts.most, options.least));
  options.method.rounds = int(TUTTI_TRY(whole_number("--rounds", texts.rounds, 1, 100000)));
  options.method.warm_up = int(TUTTI_TRY(whole_number("--warm-up", texts.warm_up, 0, 100000)));
  if (texts.pin && texts.no_pin) return usage("--pin and --no-pin contradict one another");
  options.pin = !texts.no_pin;
  options.json = texts.json;
  options.progress = texts.progress;
  return options;
}

Result<int> start_ranks(int ranks, const std::vector<std::string>& arguments) {
  char self[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", self, sizeof self - 1);
  if (length < 0) return system_error(errno, "cannot find this program through /proc/self/exe");
  JobOptions job;
  job.ranks = std::to_string(ranks);
  job.program.assign(self, std::size_t(length));
  job.arguments = {"bench"};
  job.arguments.insert(job.arguments.end(), arguments.begin(), arguments.end());
  job.arguments.emplace_back("--as-rank");
  if (::isatty(STDERR_FILENO)) job.arguments.emplace_back("--progress");
  job.announce = false;
  job.output.prefix = false;
  return run_job(job);
}

Result<int> act(const Texts& texts, const std::vector<std::string>& arguments) {
  const bench::BenchOptions options = TUTTI_TRY(interpret(texts));
  if (texts.ranks.empty() || texts.as_rank) return bench::run_rank(options);
  return start_ranks(int(TUTTI_TRY(whole_number("-n", texts.ranks, 1, 4096))), arguments);
}

}  // namespace

int bench_command(std::vector<std::string> arguments) {
  CLI::App app("Measures an operation of a group over sizes from 8 bytes to 64 MB.", "tutti bench");
  Texts texts;
  declare(app, texts);
  if (const auto code = parse(app, arguments)) return *code;
  try {
    const Result<int> code = act(texts, arguments);
    if (code.ok()) return *code;
    tell("tutti bench", code.error());
    return exit_code_of(code.error().code);
  } catch (const Exception& error) {
    tell("tutti bench", error.error());
    return exit_code_of(error.error().code);
  }
}

}  // namespace tutti::cli
