// tutti plan: the options, and what they mean for the simulator.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "apps/options/help_text.h"
#include "apps/tutti/command.h"
#include "apps/tutti/not_empty.h"
#include "apps/tutti/plan_report.h"
#include "apps/tutti/plan_shared.h"
#include "tutti/base/text.h"
#include "tutti/comm/links/executor.h"
#include "tutti/comm/links/select.h"
#include "tutti/launch/exit_codes.h"

namespace tutti::cli {
namespace in_plan {
namespace {

constexpr const char* kSynopsis = "tutti plan VERB --ranks N [OPTIONS]";
constexpr const char* kFooter = R"(
Tutti carries out the plans of all ranks in this process, over links that are only a model: a message of b bytes takes
overhead + latency + b / bandwidth, and waits while a card or a rank's port is busy. It checks every byte of the result.
bytes is the whole vector on a rank. all_gather, gather, scatter, reduce_scatter and all_to_all split it in one part per
rank, of whole elements; the remaining bytes are ignored. The predicted time is only as good as the network's
figures that you give. Calls among ranks of one host take the direct path, which is not a plan.

Examples:
  tutti plan all_reduce --ranks 4096 --hosts 512 --bytes 64M
  tutti plan all_reduce --hosts 8,8,2 --bytes 1M --algorithm all --latency 30us --bandwidth 1.25
  tutti plan all_reduce --ranks 16 --bytes 64K --algorithm ring --rank 3
  tutti plan all_reduce --ranks 8 --bytes 1M --dies 3@50us
  tutti plan pipeline --stages 4 --microbatches 8    draws a pipeline schedule (tutti plan pipeline --help)
  tutti plan grid --ranks 16 --tp 2 --pp 4           draws the groups of a grid (tutti plan grid --help)
  tutti plan measure -n 2 -o cluster.toml            measures the hosts of a job (tutti plan measure --help)

Exit codes:
  0  simulated, and the result is right
  1  the result is wrong, or a fault kept some ranks from ending
  2  wrong usage)";

// The options as text; PlanQuestion holds what they mean.
struct Texts {
  std::string verb, ranks, hosts, bytes, algorithm = "auto", dtype, root, segment = "256K";
  std::string latency = "10us", bandwidth = "12.5", overhead = "1us", cards = "1";
  std::string inside_latency = "1us", inside_bandwidth = "20", inside_overhead = "0.2us";
  std::string add_bandwidth = "10", jitter = "0", seed = "0";
  std::string rank, steps;
  std::vector<std::string> dies, cut, slow;
  bool in_place = false, json = false;
};

void declare(CLI::App& app, Texts& texts) {
  set_help(app, kFooter, kSynopsis);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("VERB", texts.verb,
                 "all_reduce, reduce, scan, exscan, broadcast, all_gather, gather, scatter, reduce_scatter, "
                 "all_to_all, barrier (or pipeline, grid, measure)")
      ->type_name("");
  const auto add = [&](const char* group, const char* names, std::string& target, const char* words, const char* type) {
    app.add_option(names, target, words)->group(group)->type_name(type)->check(kNotEmpty);
  };
  add("The call", "-n,--ranks", texts.ranks, "number of ranks", "N");
  add("The call", "--hosts", texts.hosts, "number of hosts, or the ranks of each: 8,8,2 (a host for each rank)", "H");
  add("The call", "--bytes", texts.bytes, "the whole vector on a rank (1M)", "BYTES");
  add("The call", "--dtype", texts.dtype, "f32 (default), f64, f16, bf16, i8, u8, i32, i64, bool, c64, c128", "TYPE");
  add("The call", "--root", texts.root, "root of reduce, broadcast, gather and scatter (0)", "R");
  app.add_flag("--in-place", texts.in_place, "input and output are one buffer")->group("The call");
  add("The plan", "--algorithm", texts.algorithm,
      "a name, auto (default: the choice that Tutti makes), or all (compare them)", "NAME");
  add("The plan", "--segment", texts.segment, "size of the pieces of large transfers (256K)", "BYTES");
  add("The plan", "--rank", texts.rank, "show the first steps of this rank", "R");
  add("The plan", "--steps", texts.steps, "with --rank: how many steps to show (12)", "K");
  add("The network", "--latency", texts.latency, "latency between hosts (10us)", "TIME");
  add("The network", "--bandwidth", texts.bandwidth,
      "bandwidth of a host's card, each way, in 1e9 bytes per second (12.5)", "GB/S");
  add("The network", "--overhead", texts.overhead, "time that a message keeps the card busy, besides its bytes (1us)",
      "TIME");
  add("The network", "--cards", texts.cards, "network cards of each host (1)", "K");
  add("The network", "--inside-latency", texts.inside_latency, "latency between ranks of a host (1us)", "TIME");
  add("The network", "--inside-bandwidth", texts.inside_bandwidth, "bandwidth of a rank within its host, each way (20)",
      "GB/S");
  add("The network", "--inside-overhead", texts.inside_overhead,
      "overhead of a message between ranks of a host (0.2us)", "TIME");
  add("The network", "--add-bandwidth", texts.add_bandwidth, "bytes that a rank adds up per second (10)", "GB/S");
  add("The network", "--jitter", texts.jitter, "latencies grow by a random share, at most this (0)", "X");
  add("The network", "--seed", texts.seed, "seed of the random numbers; same seed, same run (0: none but --jitter's)",
      "N");
  const auto add_many = [&](const char* name, std::vector<std::string>& target, const char* words, const char* type) {
    app.add_option(name, target, words)
        ->group("Faults")
        ->type_name(type)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->check(kNotEmpty)
        ->expected(1);
  };
  add_many("--dies", texts.dies, "kill a rank at a time: 3@50us; may be given again", "R@TIME");
  add_many("--cut", texts.cut, "cut a link at a time: 3-4@50us", "A-B@TIME");
  add_many("--slow", texts.slow, "make a rank slower by a factor: 3@10", "R@FACTOR");
  app.add_flag("--json", texts.json, "a line of JSON for each algorithm")->group("Output");
}

constexpr std::uint64_t kMostBytes = std::uint64_t(1) << 44;
constexpr std::size_t kMostPieces = 1 << 16;  // of a vector: more take minutes

Result<double> positive(const std::string& option, const std::string& text) {
  const auto value = parse_double(text);
  if (!value || !(*value > 0) || *value > 1e9) return usage(option + " needs a number above 0, not '" + text + "'");
  return *value;
}

Result<double> time(const std::string& option, const std::string& text) {
  const auto seconds = parse_seconds(text);
  if (!seconds || *seconds < 0 || *seconds > 1e6)
    return usage(option + " needs a duration such as 10us or 1ms, not '" + text + "'");
  return *seconds;
}

Result<std::size_t> bytes(const std::string& option, const std::string& text, std::uint64_t least) {
  const auto value = parse_bytes(text);
  if (!value || *value < least || *value > kMostBytes)
    return usage(option + " needs a size from " + bytes_text(least) + " to " + bytes_text(kMostBytes) +
                 " such as 4096, 64K or 64M, not '" + text + "'");
  return std::size_t(*value);
}

// --ranks and --hosts together say where the ranks are.
Result<comm::Hosts> hosts_of(const Texts& texts) {
  std::optional<int> ranks;
  if (!texts.ranks.empty()) ranks = int(TUTTI_TRY(whole_number("--ranks", texts.ranks, 1, kMostPlannedRanks)));
  return comm::Hosts::of_sizes(TUTTI_TRY(planned_host_sizes(
      ranks, texts.hosts, kSynopsis, "tutti plan all_reduce --hosts 8,8,2, with the ranks of each host")));
}

Result<int> rank_of(const std::string& option, const std::string& text, int ranks) {
  return int(TUTTI_TRY(whole_number(option, text, 0, ranks - 1)));
}

// The rank in the value of one of the options of faults.
Result<int> rank_in(const std::string& option, const std::string& value, const std::string& text, int ranks) {
  const auto rank = parse_int(text);
  if (rank && *rank >= 0 && *rank < ranks) return int(*rank);
  return usage(option + " " + value + ": '" + text + "' is none of the " + std::to_string(ranks) + " ranks",
               ranks == 1 ? "the only rank is 0" : "they are 0 to " + std::to_string(ranks - 1));
}

Result<Faults> faults_of(const Texts& texts, int ranks) {
  Faults faults;
  const auto halves = [](const std::string& option, const std::string& text,
                         const char* form) -> Result<std::pair<std::string, std::string>> {
    const std::size_t at = text.find('@');
    if (at == std::string::npos) return usage(option + " needs " + form + ", not '" + text + "'");
    return std::pair(text.substr(0, at), text.substr(at + 1));
  };
  for (const std::string& text : texts.dies) {
    const auto [rank, at] = TUTTI_TRY(halves("--dies", text, "a rank and a time such as 3@50us"));
    faults.deaths.push_back({TUTTI_TRY(rank_in("--dies", text, rank, ranks)), TUTTI_TRY(time("--dies", at))});
  }
  for (const std::string& text : texts.cut) {
    const char* const form = "two ranks and a time such as 3-4@50us";
    const auto [pair, at] = TUTTI_TRY(halves("--cut", text, form));
    const auto both = split(pair, '-');
    if (both.size() != 2) return usage("--cut needs " + std::string(form) + ", not '" + text + "'");
    const int one = TUTTI_TRY(rank_in("--cut", text, both[0], ranks));
    const int other = TUTTI_TRY(rank_in("--cut", text, both[1], ranks));
    if (one == other) return usage("--cut " + text + ": rank " + both[0] + " has no link to itself");
    faults.cuts.push_back({one, other, TUTTI_TRY(time("--cut", at))});
  }
  for (const std::string& text : texts.slow) {
    const auto [rank, factor] = TUTTI_TRY(halves("--slow", text, "a rank and a factor such as 3@10"));
    faults.slow.push_back({TUTTI_TRY(rank_in("--slow", text, rank, ranks)), TUTTI_TRY(positive("--slow", factor))});
  }
  return faults;
}

Result<Network> network_of(const Texts& texts) {
  Network network;
  network.between = {TUTTI_TRY(time("--latency", texts.latency)),
                     TUTTI_TRY(positive("--bandwidth", texts.bandwidth)) * 1e9,
                     TUTTI_TRY(time("--overhead", texts.overhead))};
  network.inside = {TUTTI_TRY(time("--inside-latency", texts.inside_latency)),
                    TUTTI_TRY(positive("--inside-bandwidth", texts.inside_bandwidth)) * 1e9,
                    TUTTI_TRY(time("--inside-overhead", texts.inside_overhead))};
  network.cards = int(TUTTI_TRY(whole_number("--cards", texts.cards, 1, 1024)));
  network.add_bandwidth = TUTTI_TRY(positive("--add-bandwidth", texts.add_bandwidth)) * 1e9;
  network.jitter = TUTTI_TRY(real_number("--jitter", texts.jitter, 0, 1000));
  return network;
}

// The splits of an uneven verb do not fit on a command line.
std::vector<Kind> planned_verbs() {
  std::vector<Kind> kinds;
  for (int kind = 0; kind <= int(kLastCollective); ++kind)
    if (!is_uneven(Kind(kind))) kinds.push_back(Kind(kind));
  return kinds;
}

// What was said of something that the verb does not have.
Status check_applies(const Texts& texts, Kind kind) {
  const auto has_none = [&](const char* option, const char* of) {
    return usage(texts.verb + " has no " + of, std::string("drop ") + option);
  };
  if (!texts.root.empty() && !has_root(kind)) return has_none("--root", "root");
  if (kind == Kind::kBarrier && !texts.bytes.empty()) return has_none("--bytes", "bytes");
  if (kind == Kind::kBarrier && !texts.dtype.empty()) return has_none("--dtype", "elements");
  if (kind == Kind::kBarrier && texts.in_place) return has_none("--in-place", "buffers");
  if (!texts.steps.empty() && texts.rank.empty())
    return usage("--steps says how many steps of a rank are shown", "add --rank R");
  return {};
}

// How many elements each rank gives, and so how many bytes there are.
Status interpret_size(const Texts& texts, Kind kind, PlanQuestion& question, Request& request) {
  const std::size_t width = size_of(question.dtype);
  question.asked =
      kind == Kind::kBarrier ? 0 : TUTTI_TRY(bytes("--bytes", texts.bytes.empty() ? "1M" : texts.bytes, 0));
  if (question.asked % width != 0)
    return usage("--bytes " + texts.bytes + " is no whole number of " + std::string(name(question.dtype)) + ", of " +
                 std::to_string(width) + " bytes each");
  const bool parted = kind == Kind::kAllGather || kind == Kind::kGather || gives_parts(kind);
  const std::size_t parts = parted ? std::size_t(question.hosts.ranks()) : 1;
  request.count = question.asked / width / parts;
  question.bytes = request.count * width * parts;
  if (question.bytes == 0 && question.asked > 0)
    return usage("--bytes " + texts.bytes + " holds no element of " + name(question.dtype) + " for each of " +
                     std::to_string(parts) + " ranks",
                 "--bytes " + std::to_string(width * parts) + " or more");
  return {};
}

Status interpret(const Texts& texts, PlanQuestion& question) {
  std::vector<std::string> verbs, dtypes, algorithms;
  const std::vector<Kind> kinds = planned_verbs();
  for (const Kind kind : kinds) verbs.emplace_back(name(kind));
  if (texts.verb.empty()) return not_given("verb", kSynopsis, "tutti plan all_reduce --ranks 16");
  comm::Scenario& scenario = question.scenario;
  const Kind kind = scenario.kind = kinds[TUTTI_TRY(choose("verb", texts.verb, verbs))];
  TUTTI_TRY(check_applies(texts, kind));
  for (DType dtype : kDTypes) dtypes.emplace_back(name(dtype));
  question.dtype = texts.dtype.empty() ? DType::kF32 : kDTypes[TUTTI_TRY(choose("dtype", texts.dtype, dtypes))];
  question.hosts = TUTTI_TRY(hosts_of(texts));
  const int ranks = question.hosts.ranks();
  Request request{.kind = kind, .dtype = question.dtype};
  TUTTI_TRY(interpret_size(texts, kind, question, request));
  // Sums of 16 bits travel as f32.
  scenario.shape = {.size = ranks,
                    .root = texts.root.empty() ? 0 : TUTTI_TRY(rank_of("--root", texts.root, ranks)),
                    .count = request.count,
                    .element = size_of(comm::wire_dtype(request)),
                    .in_place = texts.in_place,
                    .segment = TUTTI_TRY(bytes("--segment", texts.segment, 1)),
                    .hosts = &question.hosts};
  if (const std::size_t pieces = question.bytes / scenario.shape.segment; pieces > kMostPieces)
    return usage("--segment " + texts.segment + " cuts " + bytes_text(question.bytes) + " into " +
                     std::to_string(pieces) + " pieces, and the simulator takes " + std::to_string(kMostPieces),
                 "--segment " + std::to_string((question.bytes + kMostPieces - 1) / kMostPieces) + " or more");
  scenario.network = TUTTI_TRY(network_of(texts));
  scenario.faults = TUTTI_TRY(faults_of(texts, ranks));
  scenario.seed = std::uint64_t(TUTTI_TRY(whole_number("--seed", texts.seed, 0, std::int64_t(1) << 62)));
  // Real values as well, where that costs nothing.
  scenario.with_elements = scenario.shape.element <= 8 && double(question.bytes) * ranks < (1 << 22);

  for (const std::string& name : comm::algorithm_names()) algorithms.push_back(name);
  algorithms.insert(algorithms.begin(), {"auto", "all"});
  question.chosen = comm::Selector(question.hosts, scenario.network, {}).algorithm(request);
  const std::size_t place = TUTTI_TRY(choose("algorithm", texts.algorithm, algorithms));
  std::vector<std::string> implemented;
  for (int other = 0; other <= int(comm::kLastAlgorithm); ++other) {
    if (!comm::implements(comm::Algorithm(other), kind)) continue;
    implemented.emplace_back(name(comm::Algorithm(other)));
    if (place == 1) question.algorithms.push_back(comm::Algorithm(other));
  }
  if (place == 0) question.algorithms = {question.chosen};
  if (place > 1) {
    question.algorithms = {comm::Algorithm(place - 2)};
    if (!comm::implements(question.algorithms[0], kind))
      return usage("there is no " + texts.algorithm + " for " + texts.verb, "known: " + join(implemented, ", "));
  }
  if (!texts.rank.empty()) question.rank = TUTTI_TRY(rank_of("--rank", texts.rank, ranks));
  if (!texts.steps.empty()) question.steps = int(TUTTI_TRY(whole_number("--steps", texts.steps, 1, 1000000)));
  return {};
}

PlanAnswer answer(const PlanQuestion& question, comm::Algorithm algorithm) {
  comm::Scenario scenario = question.scenario;
  scenario.plan = [&](const comm::Shape& shape) { return comm::make_plan(algorithm, scenario.kind, shape).or_throw(); };
  Result<comm::Outcome> outcome = simulate(scenario);
  if (!outcome.ok()) return {.algorithm = algorithm, .outcome = {}, .refusal = outcome.error().detail};
  return {.algorithm = algorithm, .outcome = *std::move(outcome), .refusal = {}};
}

// What is planned besides a collective.
constexpr struct {
  const char* subject;
  int (*command)(std::vector<std::string> arguments);
} kSubjects[] = {{"pipeline", plan_pipeline_command},
                 {"grid", plan_grid_command},
                 {"measure", plan_measure_command},
                 {"train", plan_train_command}};

}  // namespace
}  // namespace in_plan

int plan_command(std::vector<std::string> arguments) {
  using namespace in_plan;
  for (const auto& [subject, command] : kSubjects)
    if (!arguments.empty() && arguments[0] == subject) return command({arguments.begin() + 1, arguments.end()});
  CLI::App app("Predicts a collective on a network that you describe, and checks it.", "tutti plan");
  Texts texts;
  declare(app, texts);
  if (const auto code = parse(app, std::move(arguments))) return *code;
  try {
    PlanQuestion question;
    if (const Status understood = interpret(texts, question); !understood.ok()) {
      report("tutti plan", understood.error());
      return tutti::launch::exit_code_of(understood.error().code);
    }
    std::vector<PlanAnswer> answers;
    for (const comm::Algorithm algorithm : question.algorithms) answers.push_back(answer(question, algorithm));
    std::fputs((texts.json ? to_json(question, answers) : to_text(question, answers)).c_str(), stdout);
    return exit_code_of(answers);
  } catch (const Exception& error) {
    report("tutti plan", error.error());
    return tutti::launch::exit_code_of(error.error().code);
  }
}

}  // namespace tutti::cli
