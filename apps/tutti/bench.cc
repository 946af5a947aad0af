// tutti bench: with -n it starts its ranks, which are this same program once more; without, it is a rank of the world
// that the environment tells of (tutti run, mpirun, srun, torchrun), which may span several hosts. With --peers or
// --plot it starts them, and the peers, in turn, and reads what they say.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "apps/tutti/bench_options.h"
#include "tutti/base/env.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/job.h"
#include "tutti/launch/tuning.h"

namespace tutti::cli {
namespace in_bench {
namespace {

// MPI's own launcher starts the ranks of the engine mpi. Does not return where it could be started.
Error become_mpirun(int ranks, const std::vector<std::string>& arguments) {
  const auto command = bench::mpirun_command(ranks);
  if (!command.ok()) return usage("--engine mpi is started by mpirun: " + command.error().detail, command.error().hint);
  std::vector<std::string> words = *command;
  words.push_back(bench::own_path());
  words.insert(words.end(), arguments.begin(), arguments.end());
  Environment environment = current_environment();
  bench::permit_root(environment);
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(words[0].c_str(), pointers.data());
  return system_error(errno, "could not execute " + words[0]);
}

Result<int> start_ranks(int ranks, const BenchTexts& texts, const std::vector<std::string>& given) {
  std::vector<std::string> arguments = {"bench"};
  arguments.insert(arguments.end(), given.begin(), given.end());
  arguments.emplace_back("--as-rank");
  if (texts.two_hosts) return bench::run_on_two_hosts(ranks, arguments);
  if (::isatty(STDERR_FILENO)) arguments.emplace_back("--progress");
  if (texts.engine == "mpi") return become_mpirun(ranks, arguments);
  launch::JobOptions job;
  job.ranks = std::to_string(ranks);
  job.program = bench::own_path();
  job.arguments = std::move(arguments);
  job.announce = false;
  job.output.prefix = false;
  return launch::run_job(job);
}

Result<int> act(const BenchTexts& texts, const std::vector<std::string>& arguments) {
  if (!texts.congestion.empty() && !(texts.two_hosts && texts.peers))
    return usage("--congestion goes with --two-hosts --peers");
  if (!texts.against.empty() && !texts.peers) return usage("--against goes with --peers");
  if (!texts.turns.empty() && !texts.compares()) return usage("--turns goes with --peers or --plot");
  if (!texts.only.empty() && !texts.is_table()) return usage("--only chooses lines of the table: tutti bench --peers");
  if (texts.two_hosts && !texts.as_rank) {
    const int ranks = TUTTI_TRY(ranks_of(texts, 2));
    if (ranks % 2) return usage("--two-hosts needs an even number of ranks, not " + std::to_string(ranks));
    if (texts.engine == "mpi" && !texts.peers) return usage("--two-hosts starts no ranks of the engine mpi");
  }
  if (texts.compares()) {
    const bench::CompareOptions comparison = TUTTI_TRY(interpret_comparison(texts));
    if (texts.is_table()) return bench::compare_targets(TUTTI_TRY(interpret_method(texts)), texts.only, comparison);
    const bench::BenchOptions options = TUTTI_TRY(interpret_bench(texts));
    return bench::compare_operation(TUTTI_TRY(interpret_task(texts, options)), comparison);
  }
  const bench::BenchOptions options = TUTTI_TRY(interpret_bench(texts));
  if (texts.as_rank || (texts.ranks.empty() && !texts.two_hosts)) {
    launch::keep_freed_memory(env);
    return bench::run_rank(options);
  }
  const int ranks = TUTTI_TRY(ranks_of(texts, 2));
  const bool all = TUTTI_TRY(check_sizes(options, ranks));
  const int code = TUTTI_TRY(start_ranks(ranks, texts, arguments));
  return code == 0 && !all ? 2 : code;
}

}  // namespace
}  // namespace in_bench

int bench_command(std::vector<std::string> arguments) {
  using namespace in_bench;
  CLI::App app("Measures operations of a group, and checks them, over sizes from 8 bytes to 64 MB.", "tutti bench");
  BenchTexts texts;
  declare(app, texts);
  if (const auto code = parse(app, arguments)) return *code;
  try {
    const Result<int> code = act(texts, arguments);
    if (code.ok()) return *code;
    report("tutti bench", code.error());
    return launch::exit_code_of(code.error().code);
  } catch (const Exception& error) {
    report("tutti bench", error.error());
    return launch::exit_code_of(error.error().code);
  }
}

}  // namespace tutti::cli
