// One pair of functions for each group of the help, in its order: what there is, and what was meant.
#include "apps/tutti/run_options.h"

#include <memory>

#include "apps/command_line.h"
#include "tutti/base/text.h"

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

class Formatter : public CLI::Formatter {
 public:
  Formatter() { column_width(34); }
  std::string make_usage(const CLI::App*, std::string) const override {
    return std::string("Usage: ") + kUsageLine + "\n";
  }
};

// The options of one group of the help.
class Group {
 public:
  Group(CLI::App& app, const char* name) : app_(app), name_(name) {}

  void value(const char* names, std::string& target, const char* type, const char* words) const {
    app_.add_option(names, target, words)->group(name_)->type_name(type);
  }
  void flag(const char* names, bool& target, const char* words) const {
    app_.add_flag(names, target, words)->group(name_);
  }

 private:
  CLI::App& app_;
  const char* name_;
};

Result<std::optional<int>> number(const std::string& option, const std::string& text, int least, int most) {
  if (text.empty()) return std::optional<int>();
  return std::optional<int>(int(TUTTI_TRY(whole_number(option, text, least, most))));
}

void declare_ranks(const Group& add, RankTexts& texts) {
  add.value("-n,--nproc,--nproc-per-node", texts.ranks, "N",
            "ranks of this node; auto: one per core; 8,2: of each node");
}

Status interpret_ranks(const RankTexts& texts, JobOptions& job) {
  job.ranks = texts.ranks;
  return {};
}

void declare_nodes(const Group& add, NodeTexts& texts, JobOptions& job) {
  add.value("--nnodes", texts.nodes, "K", "number of nodes (default 1)");
  add.value("--node-rank", texts.node_rank, "R", "number of this node, from 0");
  add.value("--master-addr", job.master_address, "HOST", "address of node 0, as all nodes see it");
  add.value("--master-port", texts.master_port, "PORT",
            "MASTER_PORT of the program, left free for it (default 29500; one node: any)");
  add.value("--store-port", texts.store_port, "PORT", "where node 0 serves the store (default: master port + 1)");
  add.value("--job-id", job.job, "ID", "name of the job, the same on all nodes (default: from the port)");
  add.value("--secret-file", job.secret_file, "FILE", "file of mode 0600 with the job's secret (or TUTTI_SECRET)");
  add.flag("--insecure", job.insecure, "let in whoever connects");
  add.value("--connect-timeout", texts.connect_timeout, "TIME", "how long the nodes wait for each other (5min)");
}

Status interpret_nodes(const NodeTexts& texts, JobOptions& job) {
  job.nodes = TUTTI_TRY(number("--nnodes", texts.nodes, 1, 100000));
  job.node = TUTTI_TRY(number("--node-rank", texts.node_rank, 0, 100000)).value_or(0);
  job.master_port = TUTTI_TRY(number("--master-port", texts.master_port, 1, 65535));
  job.store_port = TUTTI_TRY(number("--store-port", texts.store_port, 1, 65535));
  job.connect_timeout = TUTTI_TRY(duration("--connect-timeout", texts.connect_timeout));
  return {};
}

void declare_output(const Group& add, OutputTexts& texts, JobOptions& job) {
  add.value("--log-dir", job.output.log_dir, "DIR", "also write DIR/<job>/attempt_0/rank_<r>/{stdout,stderr}.log");
  add.value("--only-ranks", texts.only_ranks, "LIST", "show only these ranks here, for example 0,2,5-7");
  add.value("--quiet-ranks", texts.quiet_ranks, "LIST", "do not show these ranks here");
  add.flag("--no-prefix", texts.no_prefix, "no [rank] before each line; bytes as they come");
  add.flag("-q,--quiet", texts.quiet, "no line about the job at its start");
}

Status interpret_output(const OutputTexts& texts, JobOptions& job) {
  if (!texts.only_ranks.empty()) job.output.only_ranks = TUTTI_TRY(parse_ranks(texts.only_ranks, "--only-ranks"));
  if (!texts.quiet_ranks.empty()) job.output.quiet_ranks = TUTTI_TRY(parse_ranks(texts.quiet_ranks, "--quiet-ranks"));
  job.output.prefix = !texts.no_prefix;
  job.announce = !texts.quiet;
  return {};
}

void declare_speed(const Group& add, SpeedTexts& texts) {
  add.flag("--no-tune", texts.no_tune, "leave OMP_NUM_THREADS, OPENBLAS_* and MALLOC_* alone");
}

Status interpret_speed(const SpeedTexts& texts, JobOptions& job) {
  job.tune = !texts.no_tune;
  return {};
}

void declare_watching(const Group& add, WatchingTexts& texts) {
  add.value("--node-timeout", texts.node_timeout, "TIME", "a node that is silent this long is lost (10s)");
}

Status interpret_watching(const WatchingTexts& texts, JobOptions& job) {
  job.node_timeout = TUTTI_TRY(duration("--node-timeout", texts.node_timeout));
  return {};
}

void declare_ending(const Group& add, EndingTexts& texts) {
  add.value("--grace", texts.grace, "TIME", "from SIGTERM to SIGKILL after a rank failed (5s)");
  add.value("--signal-grace", texts.signal_grace, "TIME",
            "the same after Ctrl-C or SIGTERM, for ranks that save (30s)");
  add.value("--timeout", texts.time_limit, "TIME", "end the job after this long");
}

Status interpret_ending(const EndingTexts& texts, JobOptions& job) {
  job.grace = TUTTI_TRY(duration("--grace", texts.grace));
  job.signal_grace = TUTTI_TRY(duration("--signal-grace", texts.signal_grace));
  if (!texts.time_limit.empty()) job.time_limit = TUTTI_TRY(duration("--timeout", texts.time_limit));
  return {};
}

Status interpret_program(const RunTexts& texts, std::vector<std::string> rest, JobOptions& job) {
  if (!rest.empty() && rest[0] == "--") rest.erase(rest.begin());
  if (texts.ranks.ranks == "p")  // -np N, as mpirun has it, is -n with the value "p"
    return usage("unknown option -np", "tutti run -n " + (rest.empty() ? std::string("N") : rest[0]) + " ...");
  if (rest.empty()) return usage("which program?", std::string(kUsageLine));
  job.program = rest[0];
  job.arguments.assign(rest.begin() + 1, rest.end());
  return {};
}

}  // namespace

void declare(CLI::App& app, RunTexts& texts, JobOptions& job) {
  app.prefix_command();
  app.set_help_flag("-h,--help", "this text");
  app.footer(kFooter);
  app.formatter(std::make_shared<Formatter>());
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  declare_ranks(Group(app, "Ranks"), texts.ranks);
  declare_nodes(Group(app, "Several nodes"), texts.nodes, job);
  declare_output(Group(app, "Output"), texts.output, job);
  declare_speed(Group(app, "Speed"), texts.speed);
  declare_watching(Group(app, "Watching"), texts.watching);
  declare_ending(Group(app, "Ending"), texts.ending);
}

Status interpret(const RunTexts& texts, std::vector<std::string> rest, JobOptions& job) {
  TUTTI_TRY(interpret_program(texts, std::move(rest), job));
  TUTTI_TRY(interpret_ranks(texts.ranks, job));
  TUTTI_TRY(interpret_nodes(texts.nodes, job));
  TUTTI_TRY(interpret_output(texts.output, job));
  TUTTI_TRY(interpret_speed(texts.speed, job));
  TUTTI_TRY(interpret_watching(texts.watching, job));
  return interpret_ending(texts.ending, job);
}

}  // namespace tutti::cli
