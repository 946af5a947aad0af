// tutti run: the options, and what they mean for a job.
#include <CLI/CLI.hpp>
#include <cstdlib>

#include "apps/tutti/command.h"
#include "tutti/base/text.h"
#include "tutti/launch/agent.h"
#include "tutti/launch/job.h"

namespace tutti::cli {
namespace {

constexpr const char* kUsageLine = "tutti run -n N [OPTIONS] [--] PROGRAM [ARGUMENTS...]";
constexpr const char* kFooter = R"(
What follows PROGRAM belongs to the program, --help and all. Each worker gets torchrun's variables (RANK, WORLD_SIZE,
LOCAL_RANK, MASTER_ADDR, ...), so any program can be started, Python included. The first rank that fails ends the job.

Examples:
  tutti run -n 4 ./train --epochs 3
  tutti run -n 2 -- python3 train.py --help
  two hosts (both commands; the secret file is the same on both):
    host a:  tutti run --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --master-port 29500 --secret-file s -n 8 ./train
    host b:  tutti run --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 29500 --secret-file s -n 2 ./train

Exit codes: 0 all ranks ended well; a failed rank's own code, or 128 + the signal that killed it; 1 the system or tutti
  itself failed; 2 wrong usage; 4 the nodes did not meet, or lost one another; 124 the --timeout passed; 130 Ctrl-C;
  141 nobody read the output any more.)";

Result<std::optional<int>> number(const std::string& option, const std::string& text, int least, int most) {
  if (text.empty()) return std::optional<int>();
  return std::optional<int>(int(TUTTI_TRY(whole_number(option, text, least, most))));
}

class Formatter : public CLI::Formatter {
 public:
  Formatter() { column_width(34); }
  std::string make_usage(const CLI::App*, std::string) const override {
    return std::string("Usage: ") + kUsageLine + "\n";
  }
};

// The options as text; JobOptions holds what they mean.
struct Texts {
  std::string ranks = "1", nodes, node_rank, master_port, store_port;
  std::string connect_timeout = "5min", node_timeout = "10s", grace = "5s", signal_grace = "30s", time_limit;
  std::string only_ranks, quiet_ranks;
  bool no_prefix = false, no_tune = false, quiet = false;
};

void declare(CLI::App& app, Texts& texts, JobOptions& job) {
  app.prefix_command();
  app.set_help_flag("-h,--help", "this text");
  app.footer(kFooter);
  app.formatter(std::make_shared<Formatter>());
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const auto add = [&](const char* group, const char* names, auto& target, const char* words) {
    return app.add_option(names, target, words)->group(group);
  };
  const auto add_flag = [&](const char* group, const char* names, bool& target, const char* words) {
    app.add_flag(names, target, words)->group(group);
  };
  add("Ranks", "-n,--nproc,--nproc-per-node", texts.ranks, "ranks of this node; auto: one per core; 8,2: of each node")
      ->type_name("N");
  add("Several nodes", "--nnodes", texts.nodes, "number of nodes (default 1)")->type_name("K");
  add("Several nodes", "--node-rank", texts.node_rank, "number of this node, from 0")->type_name("R");
  add("Several nodes", "--master-addr", job.master_address, "address of node 0, as all nodes see it")
      ->type_name("HOST");
  add("Several nodes", "--master-port", texts.master_port,
      "MASTER_PORT of the program, left free for it (default 29500; one node: any)")
      ->type_name("PORT");
  add("Several nodes", "--store-port", texts.store_port, "where node 0 serves the store (default: master port + 1)")
      ->type_name("PORT");
  add("Several nodes", "--job-id", job.job, "name of the job, the same on all nodes (default: from the port)")
      ->type_name("ID");
  add("Several nodes", "--secret-file", job.secret_file, "file of mode 0600 with the job's secret (or TUTTI_SECRET)")
      ->type_name("FILE");
  add_flag("Several nodes", "--insecure", job.insecure, "let in whoever connects");
  add("Several nodes", "--connect-timeout", texts.connect_timeout, "how long the nodes wait for each other (5min)")
      ->type_name("TIME");
  add("Several nodes", "--node-timeout", texts.node_timeout, "a node that is silent this long is lost (10s)")
      ->type_name("TIME");
  add("Output", "--log-dir", job.output.log_dir, "also write DIR/<job>/attempt_0/rank_<r>/{stdout,stderr}.log")
      ->type_name("DIR");
  add("Output", "--only-ranks", texts.only_ranks, "show only these ranks here, for example 0,2,5-7")->type_name("LIST");
  add("Output", "--quiet-ranks", texts.quiet_ranks, "do not show these ranks here")->type_name("LIST");
  add_flag("Output", "--no-prefix", texts.no_prefix, "no [rank] before each line; bytes as they come");
  add_flag("Output", "-q,--quiet", texts.quiet, "no line about the job at its start");
  add_flag("Speed", "--no-tune", texts.no_tune, "leave OMP_NUM_THREADS, OPENBLAS_* and MALLOC_* alone");
  add("Ending", "--grace", texts.grace, "from SIGTERM to SIGKILL after a rank failed (5s)")->type_name("TIME");
  add("Ending", "--signal-grace", texts.signal_grace, "the same after Ctrl-C or SIGTERM, for ranks that save (30s)")
      ->type_name("TIME");
  add("Ending", "--timeout", texts.time_limit, "end the job after this long")->type_name("TIME");
}

Status interpret(const Texts& texts, std::vector<std::string> rest, JobOptions& job) {
  if (!rest.empty() && rest[0] == "--") rest.erase(rest.begin());
  if (texts.ranks == "p")  // -np N, as mpirun has it, is -n with the value "p"
    return usage("unknown option -np", "tutti run -n " + (rest.empty() ? std::string("N") : rest[0]) + " ...");
  if (rest.empty()) return usage("which program?", std::string(kUsageLine));
  job.program = rest[0];
  job.arguments.assign(rest.begin() + 1, rest.end());
  job.ranks = texts.ranks;
  job.nodes = TUTTI_TRY(number("--nnodes", texts.nodes, 1, 100000));
  job.node = TUTTI_TRY(number("--node-rank", texts.node_rank, 0, 100000)).value_or(0);
  job.master_port = TUTTI_TRY(number("--master-port", texts.master_port, 1, 65535));
  job.store_port = TUTTI_TRY(number("--store-port", texts.store_port, 1, 65535));
  job.connect_timeout = TUTTI_TRY(duration("--connect-timeout", texts.connect_timeout));
  job.node_timeout = TUTTI_TRY(duration("--node-timeout", texts.node_timeout));
  job.grace = TUTTI_TRY(duration("--grace", texts.grace));
  job.signal_grace = TUTTI_TRY(duration("--signal-grace", texts.signal_grace));
  if (!texts.time_limit.empty()) job.time_limit = TUTTI_TRY(duration("--timeout", texts.time_limit));
  if (!texts.only_ranks.empty()) job.output.only_ranks = TUTTI_TRY(parse_ranks(texts.only_ranks, "--only-ranks"));
  if (!texts.quiet_ranks.empty()) job.output.quiet_ranks = TUTTI_TRY(parse_ranks(texts.quiet_ranks, "--quiet-ranks"));
  job.tune = !texts.no_tune;
  job.announce = !texts.quiet;
  job.output.prefix = !texts.no_prefix;
  return {};
}

}  // namespace

int run_command(std::vector<std::string> arguments) {
  CLI::App app("Starts a program as several ranks and ends the job as one.", "tutti run");
  Texts texts;
  JobOptions job;
  declare(app, texts, job);
  if (const auto code = parse(app, std::move(arguments))) return *code;
  const Status understood = interpret(texts, app.remaining(), job);
  if (!understood) {
    tell("tutti run", understood.error());
    return kExitUsage;
  }
  const Result<int> code = run_job(job);
  if (code.ok()) return *code;
  tell("tutti run", code.error());
  return exit_code_of(code.error().code);
}

}  // namespace tutti::cli
