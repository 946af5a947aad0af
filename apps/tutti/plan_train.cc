// tutti plan train: chooses how a training is divided among the devices of a cluster.
#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "apps/options/dlrm_model_options.h"
#include "apps/options/option_parser.h"
#include "apps/options/transformer_options.h"
#include "apps/tutti/command.h"
#include "apps/tutti/plan_shared.h"
#include "apps/tutti/plan_train_dlrm.h"
#include "apps/tutti/plan_train_report.h"
#include "apps/tutti/plan_train_runs.h"
#include "tutti/base/text.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/planning/training/cluster_presets.h"
#include "tutti/planning/training/measured_runs.h"
#include "tutti/planning/transformer_presets.h"

namespace tutti::cli {
namespace in_plan_train {
namespace {

constexpr ProgramHelp kHelp = {"tutti plan train", "Chooses how a training is divided among the devices of a cluster.",
                               R"(
Tutti compares all plans that use every device: sizes of tensor, context, pipeline and data parallelism, schedules,
micro batches, sharding and recomputation. It prints the fastest plan that fits, what its step and its memory consist
of, and why other ways lose. docs/concepts/planner.md has the formulas.

A plan is written as tp=4,sp,pp=2,schedule=interleaved,chunks=3,dp=8,mbs=2,zero=1,recompute=full,overlap. Axes of size 1
may be omitted. recompute=2 recomputes two layers of each chunk. first=3,last=1 gives the first and the last stage these
layers; otherwise stages are as even as possible.

--model mlp, cnn and mlp:N-N-.. are classifiers, of which every rank has the whole: dp, mbs, zero and overlap are
chosen, as train_image has them. --model dlrm is train_dlrm's: the placement of its tables is chosen, and --why, --fix
placement=NAME and --allow take placements.

Examples:
  tutti plan train --model gpt3-175b --cluster a100-sxm:128 --global-batch 1536
  tutti plan train --model llama3-8b --cluster cluster.toml --global-batch 64 --fix tp=2 --memory 60G
  tutti plan train --model llama3-8b --cluster h100-sxm --global-batch 64 --why tp=8,mbs=1
  tutti plan train --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 \
    --max-position-embeddings 1024 --vocab-size 50256 --cluster cpu:2 --global-batch 32
  tutti plan train --cluster cluster.toml --fix recompute=full --vocab-size 50256 --check runs.csv
  tutti plan train --model mlp --optimizer adam --cluster cpu --global-batch 1024
  tutti plan train --model dlrm --arch-embedding-size 1000000-1000000-500 --arch-sparse-feature-size 64 \
    --arch-mlp-bot 13-512-64 --arch-mlp-top 512-256-1 --cluster cpu:2 --global-batch 4096

Exit codes:
  0  planned
  1  nothing fits, or a file cannot be written
  2  wrong usage, a missing file, or a cluster that cannot be planned for)",
                               false};

struct TrainCommand {
  TransformerConfig config;
  dlrm::Options dlrm;
  std::string model = "gpt", cluster, runtime, goal = "time", fix, allow, memory, step_time, why, check_file,
              calibrate_file, output, svg, optimizer;
  int vocabulary = 0, sequence_length = 0, nodes = 0, devices = 0, best = 10, global_batch = 0;
  bool json = false;
};

constexpr const char* kOnePrecision = "drop one of the two: a model is computed in one precision";
constexpr const char* kOneAnswer = "drop one of the two: they are different questions";

std::vector<Option> model_options(TrainCommand& command) {
  std::vector<Option> options = {
      {"--model", "NAME", "gpt",
       "gpt, whose sizes the options below give, or a published model: gpt2, gpt2-medium, gpt2-large, gpt2-xl, "
       "gpt3-175b, llama2-7b, llama3-8b, llama3-70b, llama3-405b, mistral-7b, qwen2.5-0.5b, qwen2.5-7b; mlp, cnn or "
       "mlp:784-4096-10 (numbers of a layer); dlrm",
       text(command.model)},
      {"--seq-length", "N", "", "sequence length in tokens (of a published model: the longest)",
       whole(command.sequence_length, 1, kMostSize)},
      {"--vocab-size", "N", "", "number of tokens; the end of a document is one more",
       whole(command.vocabulary, 1, kMostSize)}};
  const std::vector<Option> sizes = transformer_options(command.config);
  options.insert(options.end(), sizes.begin(), sizes.end());
  const std::vector<Option> precisions = {
      {"--bf16", "", "", "runtime tutti: compute matrix products in bf16", flag_only(),
       excludes("--fp16", kOnePrecision) + excludes("--fp64", kOnePrecision)},
      {"--fp16", "", "", "runtime tutti: compute matrix products in f16", flag_only(),
       excludes("--fp64", kOnePrecision)},
      {"--fp64", "", "", "runtime tutti: compute in f64", flag_only()}};
  options.insert(options.end(), precisions.begin(), precisions.end());
  return options;
}

// Of the models that are no transformers.
OptionGroup optimizer_options(TrainCommand& command) {
  return {"Optimizer",
          {{"--optimizer", "NAME", "sgd",
            "mlp and cnn: sgd (with momentum), adam, adamw or adagrad; dlrm: sgd, rwsadagrad or adagrad",
            text(command.optimizer)}}};
}

// The options of train_dlrm that the planner needs, with "dlrm: " in front of their help.
OptionGroup dlrm_options(TrainCommand& command) {
  OptionGroup group = dlrm_architecture_options(command.dlrm);
  group.title = "Model of --model dlrm";
  const auto add = [&](const std::vector<Option>& options) {
    group.options.insert(group.options.end(), options.begin(), options.end());
  };
  add(dlrm_smaller_tables_options(command.dlrm).options);
  add(dlrm_lookup_options(command.dlrm));
  add(dlrm_exchange_options(command.dlrm));
  return group;
}

OptionTable table_of(TrainCommand& command) {
  return {.groups = {
              {"Model", model_options(command)},
              dlrm_options(command),
              optimizer_options(command),
              {"Cluster",
               {{"--cluster", "NAME", "",
                 "a file of `tutti plan measure`, or a preset with a number of nodes: a100-sxm:128, h100-sxm, "
                 "h200-sxm, v100-p3, cpu",
                 text(command.cluster)},
                {"--nodes", "N", "", "number of nodes, in place of the cluster's", whole(command.nodes, 1, 1 << 20)},
                {"--devices", "N", "", "devices that are used of each node", whole(command.devices, 1, 1 << 16)},
                {"--memory", "BYTES", "", "memory that a rank may use, such as 60G (nine tenths of a device)",
                 text(command.memory)}}},
              {"Choice",
               {{"--global-batch",
                 "N",
                 "",
                 "samples of a step over all replicas",
                 whole(command.global_batch, 1, 1 << 30),
                 {},
                 {"--global-batch-size"}},
                {"--runtime", "NAME", "",
                 "tutti, megatron (2021), megatron-core (2023, FlashAttention) or deepspeed: the program that trains "
                 "(tutti where nodes have cores, else megatron)",
                 text(command.runtime)},
                {"--goal", "NAME", "time",
                 "time: the fastest step; memory: the least memory; devices: the fewest nodes for --step-time",
                 choice(command.goal, {"time", "memory", "devices"})},
                {"--step-time", "TIME", "", "with --goal devices: longest step, such as 2s", text(command.step_time),
                 needs("--goal devices")},
                {"--fix", "PLAN", "", "parts of the plan that are given: tp=2,recompute=full", text(command.fix)},
                {"--allow", "AXES", "", "axes that may be used, such as dp,pp,recompute (all)", text(command.allow)}}},
              {"Answers",
               {{"--best", "N", "10", "how many plans to list", whole(command.best, 1, 1000)},
                {"--why", "PLAN", "", "compare this plan with the best one", text(command.why),
                 excludes("--check", kOneAnswer) + excludes("--calibrate", kOneAnswer)},
                {"--check", "FILE", "",
                 "compare measured steps with predictions: a table with tp,pp,dp,mbs,...,step_s; of a dlrm: "
                 "placement,gbs,devices,step_s",
                 text(command.check_file),
                 excludes("--calibrate", kOneAnswer) + excludes("--output", "drop --output: only --calibrate writes")},
                {"--calibrate", "FILE", "", "fit the figures of the cluster to measured steps",
                 text(command.calibrate_file), needs("--output", "", "name the file of the fitted cluster")},
                {"--output", "FILE", "",
                 "with --calibrate: where to write the cluster; of a dlrm: the placement, for train_dlrm --plan",
                 text(command.output)},
                {"--svg", "FILE", "", "draw the plan (of --why: the given one): memory, ranks by node, pipeline",
                 text(command.svg), excludes("--check", kOneAnswer) + excludes("--calibrate", kOneAnswer)},
                {"--json", "", "", "print one line of JSON", flag(command.json)}}}}};
}

constexpr const char* kExample = "tutti plan train --model gpt3-175b --cluster a100-sxm:128 --global-batch 1536";

std::vector<std::string> parts(const std::string& list) {
  std::vector<std::string> found;
  for (const std::string& part : split(list, ','))
    if (!trim(part).empty()) found.emplace_back(trim(part));
  return found;
}

enum class ModelKind { kTransformer, kReplica, kDlrm };

ModelKind kind_of(const std::string& model) {
  return model == "dlrm" ? ModelKind::kDlrm : is_replica_model(model) ? ModelKind::kReplica : ModelKind::kTransformer;
}

// What was said of something that the model does not have.
Status check_applies(const TrainCommand& command, const OptionTexts& texts) {
  const ModelKind kind = kind_of(command.model);
  const auto refuse = [&](const char* name, const char* of) -> Status {
    if (!texts.is_given(name)) return {};
    return usage(fmt::format("{} is for {}, and --model is {}", name, of, command.model), std::string("drop ") + name);
  };
  dlrm::Options unused;
  TrainCommand other{.dlrm = unused};
  if (kind != ModelKind::kDlrm) {
    for (const Option& option : dlrm_options(other).options) TUTTI_TRY(refuse(option.name, "dlrm"));
    if (command.calibrate_file.empty()) TUTTI_TRY(refuse("--output", "--calibrate and dlrm"));
  }
  if (kind == ModelKind::kTransformer) return refuse("--optimizer", "mlp, cnn and dlrm");
  for (const Option& option : model_options(other))
    if (std::string(option.name) != "--model") TUTTI_TRY(refuse(option.name, "transformers"));
  for (const char* name : {"--runtime", "--svg"}) TUTTI_TRY(refuse(name, "transformers"));
  if (kind == ModelKind::kReplica)
    for (const char* name : {"--check", "--calibrate"}) TUTTI_TRY(refuse(name, "transformers and dlrm"));
  if (kind == ModelKind::kDlrm && command.goal == "devices")
    return usage("--goal devices is for the models of which every rank has as much, and not for dlrm",
                 "--goal time, with several --nodes");
  return {};
}

// Numbers that the optimizer keeps of each parameter.
Result<double> optimizer_state(const std::string& name) {
  const std::vector<std::string> known = {"sgd", "adam", "adamw", "adagrad"};
  constexpr double kNumbers[] = {1, 2, 2, 1};
  return kNumbers[TUTTI_TRY(choose("--optimizer", name, known))];
}

// Whether the options must describe a whole model: a table of measured runs may have its sizes.
Status interpret_model(TrainCommand& command, const OptionTexts& texts, bool is_whole, TrainQuestion& question) {
  TransformerConfig& model = question.model;
  question.model_name = command.model;
  if (kind_of(command.model) == ModelKind::kReplica) {
    question.replica = TUTTI_TRY(replica_model(command.model));
    question.optimizer = command.optimizer;
    return {};
  }
  if (command.model != "gpt") {
    auto known = transformer_preset_names();
    std::vector<std::string> names(known.begin(), known.end());
    names.insert(names.end(), {"gpt", "mlp", "cnn", "dlrm"});
    TUTTI_TRY(choose("--model", command.model, names));
    model = TUTTI_TRY(transformer_preset(command.model));
    TransformerConfig unused;
    const auto is_dropout = [](std::string_view name) { return name.ends_with("-dropout"); };
    for (const Option& option : transformer_options(unused))
      if (texts.is_given(option.name) && !is_dropout(option.name))
        return usage(fmt::format("--model {} has its own sizes, and {} is given", command.model, option.name),
                     fmt::format("drop {}, or --model", option.name));
    if (texts.is_given("--attention-dropout")) model.attention_dropout = command.config.attention_dropout;
    if (texts.is_given("--hidden-dropout")) model.hidden_dropout = command.config.hidden_dropout;
    if (command.vocabulary > 0)
      return usage(fmt::format("--model {} has its own vocabulary", command.model), "drop --vocab-size");
    if (command.sequence_length > model.positions && model.position == PositionKind::kLearned)
      return usage(fmt::format("--model {} has {} positions, and --seq-length is {}", command.model, model.positions,
                               command.sequence_length));
    if (command.sequence_length > 0) {
      model.sequence_length = command.sequence_length;
      model.positions = std::max(model.positions, model.sequence_length);
    }
  } else {
    model = command.config;
    model.sequence_length = command.sequence_length;
    if (command.vocabulary > 0) model.vocabulary = command.vocabulary + 1;
    const char* const kSizes[] = {"--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length",
                                  "--vocab-size"};
    for (const char* name : kSizes)
      if (is_whole && !texts.has(name))
        return usage(std::string(name) + " is missing", std::string("or --model, as in ") + kExample);
    if (!texts.has("--max-position-embeddings")) model.positions = model.sequence_length;
    if (std::all_of(std::begin(kSizes), std::end(kSizes), [&](const char* name) { return texts.has(name); }))
      TUTTI_TRY(set_transformer_shape(model, texts));
    else
      model.query_groups = 0;  // the runs say how many heads there are
  }
  for (const auto& [name, precision] :
       {std::pair("--bf16", Precision::kBF16), {"--fp16", Precision::kF16}, {"--fp64", Precision::kF64}})
    if (texts.is_given(name)) model.precision = precision;
  return {};
}

Status interpret_cluster(const TrainCommand& command, TrainQuestion& question) {
  if (command.cluster.empty()) return not_given("--cluster", "tutti plan train --cluster NAME [OPTIONS]", kExample);
  Cluster& cluster = question.cluster;
  cluster = TUTTI_TRY(find_cluster(command.cluster));
  if (command.nodes > 0) {
    if (cluster.nodes.size() > 1)
      return usage(fmt::format("--nodes is for a cluster of one kind of node, and {} has {}", command.cluster,
                               cluster.nodes.size()));
    cluster.nodes[0].count = command.nodes;
  }
  for (ClusterNodes& nodes : cluster.nodes) {
    if (command.devices > nodes.devices && nodes.cores == 0)
      return usage(fmt::format("--devices {}: a node of {} has {}", command.devices, command.cluster, nodes.devices));
    if (command.devices > 0) nodes.devices = command.devices;
  }
  return {};
}

Result<double> memory_of(const TrainCommand& command, const Cluster& cluster) {
  if (command.memory.empty()) return usable_memory(cluster);
  const auto bytes = parse_bytes(command.memory);
  if (!bytes || *bytes == 0) return usage("--memory needs a size such as 60G, not '" + command.memory + "'");
  return double(*bytes);
}

RunsQuestion runs_question(const TrainCommand& command) {
  return {command.check_file, command.calibrate_file, command.output, command.json};
}

Status interpret(TrainCommand& command, const OptionTexts& texts, TrainQuestion& question) {
  const bool has_runs = runs_question(command).asked();
  TUTTI_TRY(interpret_model(command, texts, !has_runs, question));
  TUTTI_TRY(interpret_cluster(command, question));
  question.global_batch = command.global_batch;
  if (!has_runs && command.global_batch == 0)
    return not_given("--global-batch", "tutti plan train --global-batch N [OPTIONS]", kExample);
  PlanOptions& options = question.options;
  const bool has_cores = question.cluster.nodes[0].cores > 0;
  const std::string runtime = !command.runtime.empty() ? command.runtime : has_cores ? "tutti" : "megatron";
  options.runtime = question.replica ? replica_runtime(TUTTI_TRY(optimizer_state(command.optimizer)))
                                     : TUTTI_TRY(training_runtime(runtime, question.model.precision));
  options.rules = {parts(command.fix), parts(command.allow)};
  options.goal = command.goal == "memory" ? PlanGoal::kMemory : PlanGoal::kTime;
  options.best = command.best;
  options.memory = TUTTI_TRY(memory_of(command, question.cluster));
  return check(options.rules);
}

Result<TrainingPlans> plans_of(const TrainQuestion& question) {
  if (question.replica)
    return plan_replicas(*question.replica, question.cluster, question.global_batch, question.options);
  return plan_training(question.model, question.cluster, question.global_batch, question.options);
}

Result<RankedPlan> evaluated(const TrainQuestion& question, const ParallelPlan& plan) {
  if (question.replica)
    return evaluate(*question.replica, question.cluster, question.global_batch, question.options.runtime, plan);
  return evaluate(question.model, question.cluster, question.global_batch, question.options.runtime, plan);
}

// Where nothing fits: the first number of nodes, doubled again and again, for which something does.
std::string nodes_that_fit(TrainQuestion question) {
  constexpr int kDoublings = 6;
  if (question.cluster.nodes.size() > 1) return {};
  for (int i = 0; i < kDoublings; ++i) {
    question.cluster.nodes[0].count *= 2;
    const auto plans = plans_of(question);
    if (plans.ok() && !plans->best.empty())
      return fmt::format("{} nodes, or devices with more memory", question.cluster.nodes[0].count);
  }
  return {};
}

Status report_nothing_fits(const TrainQuestion& question, const TrainingPlans& plans) {
  const RankedPlan* least = nullptr;
  for (const PlanFamily& family : plans.families)
    if (!least || family.best.memory.total() < least->memory.total()) least = &family.best;
  if (!least)
    return Error{.code = Code::kUsage,
                 .detail = fmt::format("no plan divides the model, the batch of {} and {} devices as the options say",
                                       question.global_batch, question.cluster.devices()),
                 .hint = "another batch, or fewer --fix and --allow"};
  const auto words = [](double bytes) { return bytes_text(std::uint64_t(bytes)); };
  const double missing = least->memory.total() - plans.limit;
  const std::string nodes = nodes_that_fit(question);
  return Error{
      .code = Code::kLimit,
      .detail = fmt::format("no plan fits: the smallest one, {}, needs {} on a rank, {} more than the {} that "
                            "there are",
                            to_string(least->plan), words(least->memory.total()), words(missing), words(plans.limit)),
      .hint = nodes.empty() ? "more nodes, or devices with more memory" : nodes};
}

Status plan(const TrainCommand& command, TrainQuestion& question) {
  const TrainingPlans plans = TUTTI_TRY(plans_of(question));
  if (!command.why.empty()) {
    const ParallelPlan given = TUTTI_TRY(parse_parallel_plan(command.why));
    const RankedPlan other = TUTTI_TRY(evaluated(question, given));
    const std::string refusal =
        question.replica ? planning::refusal_of_replicas(given) : question.options.runtime.refusal(given);
    const RankedPlan& best = plans.best.empty() ? other : plans.best[0];
    fmt::print("{}", command.json ? why_json(question, best, other, plans.limit, refusal)
                                  : why_text(question, best, other, plans.limit, refusal));
    return command.svg.empty() ? Status() : write_picture(command.svg, to_svg(question, other, plans.limit));
  }
  fmt::print("{}", command.json ? to_json(question, plans) : to_text(question, plans));
  if (!command.svg.empty() && !plans.best.empty())
    TUTTI_TRY(write_picture(command.svg, to_svg(question, plans.best[0], plans.limit)));
  return plans.best.empty() ? report_nothing_fits(question, plans) : Status();
}

// --goal devices: the fewest nodes whose best step is short enough.
Status plan_devices(const TrainCommand& command, TrainQuestion& question) {
  const auto longest = parse_seconds(command.step_time);
  if (!longest || *longest <= 0) return usage("--goal devices needs the longest step that will do", "--step-time 2s");
  if (question.cluster.nodes.size() > 1) return usage("--goal devices is for a cluster of one kind of node");
  const int all = question.cluster.nodes[0].count;
  double fastest = 0;
  for (int nodes = 1; nodes <= all; ++nodes) {
    if (all % nodes != 0) continue;
    question.cluster.nodes[0].count = nodes;
    const TrainingPlans plans = TUTTI_TRY(plans_of(question));
    if (plans.best.empty()) continue;
    const double step = plans.best[0].time.step();
    fastest = fastest == 0 ? step : std::min(fastest, step);
    if (step > *longest) continue;
    fmt::print("{}", command.json ? to_json(question, plans) : to_text(question, plans));
    if (command.svg.empty()) return {};
    return write_picture(command.svg, to_svg(question, plans.best[0], plans.limit));
  }
  return Error{.code = Code::kLimit,
               .detail = fastest > 0 ? fmt::format("no number of nodes up to {} has a step of {}: the shortest is {}",
                                                   all, seconds_text(*longest), seconds_text(fastest))
                                     : fmt::format("no plan fits on up to {} nodes", all),
               .hint = "more --nodes, or a longer --step-time"};
}

Status answer_transformer_runs(const RunsQuestion& runs, const TrainQuestion& question) {
  planning::MeasuredRun other{.model = question.model, .plan = {}, .global_batch = question.global_batch};
  TUTTI_TRY(set_in_plan(other.plan, question.options.rules.fix));
  const auto table = TUTTI_TRY(planning::parse_measured_runs(TUTTI_TRY(read_runs(runs)), runs.file(), other));
  const TrainingRuntime& runtime = question.options.runtime;
  return answer_runs(
      runs, question.cluster,
      [&](const Cluster& cluster) { return compare(table, cluster, runtime, question.options.memory); },
      [&] { return calibrated(table, question.cluster, runtime); });
}

// The options of the model as they were given.
std::vector<std::string> given_options(TrainCommand& command, const OptionTexts& texts) {
  std::vector<std::string> given;
  std::vector<Option> options = dlrm_options(command).options;
  options.push_back(optimizer_options(command).options[0]);
  for (const Option& option : options) {
    if (!texts.is_given(option.name)) continue;
    given.emplace_back(option.name);
    for (const std::string& word : texts.words(option.name)) given.push_back(word);
  }
  return given;
}

Status answer_dlrm(TrainCommand& command, const OptionTexts& texts) {
  const RunsQuestion runs = runs_question(command);
  if (!runs.asked() && command.global_batch == 0)
    return not_given("--global-batch", "tutti plan train --global-batch N [OPTIONS]", kExample);
  using Kind = dlrm::OptimizerKind;
  constexpr Kind kKinds[] = {Kind::kSgd, Kind::kRowWiseAdagrad, Kind::kAdagrad};
  const std::vector<std::string> known = {"sgd", "rwsadagrad", "adagrad"};
  command.dlrm.training.optimizer = kKinds[TUTTI_TRY(choose("--optimizer", command.optimizer, known))];
  if (command.global_batch > 0) command.dlrm.training.batch = command.global_batch;
  TUTTI_TRY(dlrm::check(command.dlrm));
  TrainQuestion cluster;
  TUTTI_TRY(interpret_cluster(command, cluster));
  return tutti::cli::plan_dlrm({.options = command.dlrm,
                                .model_options = given_options(command, texts),
                                .cluster_name = command.cluster,
                                .cluster = cluster.cluster,
                                .global_batch = command.global_batch,
                                .planning = {.goal = command.goal == "memory" ? PlanGoal::kMemory : PlanGoal::kTime,
                                             .memory = TUTTI_TRY(memory_of(command, cluster.cluster))},
                                .best = command.best,
                                .json = command.json,
                                .why = command.why,
                                .output = command.output,
                                .fix = parts(command.fix),
                                .allow = parts(command.allow),
                                .runs = runs});
}

Status act(TrainCommand& command, const OptionTexts& texts) {
  TUTTI_TRY(check_applies(command, texts));
  if (kind_of(command.model) == ModelKind::kDlrm) return answer_dlrm(command, texts);
  TrainQuestion question;
  TUTTI_TRY(interpret(command, texts, question));
  const RunsQuestion runs = runs_question(command);
  if (runs.asked()) return answer_transformer_runs(runs, question);
  return command.goal == "devices" ? plan_devices(command, question) : plan(command, question);
}

}  // namespace
}  // namespace in_plan_train

int plan_train_command(std::vector<std::string> arguments) {
  using namespace in_plan_train;
  TrainCommand command;
  OptionParser line(kHelp, table_of(command));
  if (const auto code = line.parse(arguments, report)) return *code;
  for (const std::string& sentence : line.without_effect())
    std::fprintf(stderr, "%s: %s\n", kHelp.name, sentence.c_str());
  try {
    act(command, line.texts()).or_throw();
    return 0;
  } catch (const Exception& error) {
    report(kHelp.name, error.error());
    return error.error().code == Code::kLimit ? 1 : tutti::launch::exit_code_of(error.error().code);
  }
}

}  // namespace tutti::cli
