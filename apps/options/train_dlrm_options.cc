// One table holds every option: its group in the help, its default as text, and what its text does to Options. So a
// default stands once, and the texts are what ranks compare with one another.
#include "apps/options/train_dlrm_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <limits>

#include "apps/options/command_line.h"
#include "tutti/base/env.h"
#include "tutti/base/text.h"
#include "tutti/models/dlrm/placing.h"

namespace tutti::cli {
namespace {

using dlrm::Options;

constexpr double kAny = std::numeric_limits<double>::max();
constexpr std::int64_t kMost = std::int64_t(1) << 40;

// What the text of an option does.
using Set = std::function<Status(Options&, const std::string& name, const std::string& text)>;

template <class Field>
Set whole(Field field, std::int64_t least, std::int64_t most = kMost) {
  return [=](Options& options, const std::string& name, const std::string& text) -> Status {
    using Target = std::remove_reference_t<decltype(field(options))>;
    field(options) = Target(TUTTI_TRY(whole_number(name, text, least, most)));
    return {};
  };
}
template <class Field>
Set real(Field field, double least = -kAny, double most = kAny) {
  return [=](Options& options, const std::string& name, const std::string& text) -> Status {
    field(options) = TUTTI_TRY(real_number(name, text, least, most));
    return {};
  };
}
template <class Field>
Set text_of(Field field) {
  return [=](Options& options, const std::string&, const std::string& text) -> Status {
    field(options) = text;
    return {};
  };
}
template <class Field>
Set sizes(Field field) {
  return [=](Options& options, const std::string& name, const std::string& text) -> Status {
    field(options) = TUTTI_TRY(dlrm::parse_sizes(name, text));
    return {};
  };
}
// What DlrmCommandLine::checkpoints() looks at.
Set for_checkpoints() {
  return [](Options&, const std::string&, const std::string&) { return Status(); };
}
// The values of the enumeration in the order of `names`.
template <class Field>
Set choice(Field field, std::vector<std::string> names) {
  return [=](Options& options, const std::string& name, const std::string& text) -> Status {
    using Target = std::remove_reference_t<decltype(field(options))>;
    field(options) = Target(TUTTI_TRY(choose(name, text, names)));
    return {};
  };
}
// One of some numbers.
template <class Field>
Set bits(Field field, std::vector<std::string> known) {
  return [=](Options& options, const std::string& name, const std::string& text) -> Status {
    (void)TUTTI_TRY(choose(name, text, known));
    field(options) = int(*parse_int(text));
    return {};
  };
}
// dlrm_s_pytorch.py declares these with type=bool, by which every text but the empty one is true, "False" too.
template <class Field>
Set boolean(Field field) {
  return [=](Options& options, const std::string& name, const std::string& text) -> Status {
    for (const char* yes : {"true", "True", "1"}) {
      if (text == yes) return field(options) = true, Status();
    }
    for (const char* no : {"false", "False", "0", ""}) {
      if (text == no) return field(options) = false, Status();
    }
    return usage(fmt::format("{} needs true or false (or 1 or 0), not '{}'", name, text),
                 "dlrm_s_pytorch.py takes any text for true, also \"False\"");
  };
}

struct ValueOption {
  const char* group;
  const char* name;
  const char* by_default;
  const char* type;
  const char* words;
  Set set;
};
struct FlagOption {
  const char* group;
  const char* name;
  const char* words;
  std::function<bool&(Options&)> field;
};

#define FIELD(path) \
  [](Options & o) -> auto& { return o.path; }

const std::vector<ValueOption>& value_options() {
  using dlrm::WeightedPooling;
  static const std::vector<ValueOption> options = {
      {"Architecture", "--arch-sparse-feature-size", "2", "N", "columns of an embedding table",
       whole(FIELD(architecture.sparse_feature_size), 1)},
      {"Architecture", "--arch-embedding-size", "4-3-2", "N-N-..", "rows of each table (a dataset brings its own)",
       sizes(FIELD(architecture.embedding_size))},
      {"Architecture", "--arch-mlp-bot", "4-3-2", "N-N-..", "bottom MLP, from the dense features to the columns",
       sizes(FIELD(architecture.mlp_bottom))},
      {"Architecture", "--arch-mlp-top", "4-2-1", "N-N-..", "top MLP; the width of the interaction is put in front",
       sizes(FIELD(architecture.mlp_top))},
      {"Architecture", "--arch-interaction-op", "dot", "OP", "dot: products of all pairs; cat: side by side",
       choice(FIELD(architecture.interaction), {"dot", "cat"})},
      {"Architecture", "--weighted-pooling", "", "HOW", "weigh the rows of a bag: fixed (all by 1) or learned",
       [](Options& o, const std::string& name, const std::string& text) -> Status {
         if (text.empty()) return {};
         const auto at = TUTTI_TRY(choose(name, text, {"fixed", "learned"}));
         o.architecture.weighted_pooling = at == 0 ? WeightedPooling::kFixed : WeightedPooling::kLearned;
         return {};
       }},
      {"Smaller tables", "--md-threshold", "200", "N", "mixed dimensions: tables with more rows are made narrower",
       whole(FIELD(architecture.md_threshold), 0)},
      {"Smaller tables", "--md-temperature", "0.3", "X", "mixed dimensions: 0 leaves all alike",
       real(FIELD(architecture.md_temperature), 0)},
      {"Smaller tables", "--qr-threshold", "200", "N", "quotient-remainder: tables with more rows are split",
       whole(FIELD(architecture.qr_threshold), 0)},
      {"Smaller tables", "--qr-operation", "mult", "OP", "quotient-remainder: mult, add or concat",
       choice(FIELD(architecture.qr_operation), {"mult", "add", "concat"})},
      {"Smaller tables", "--qr-collisions", "4", "N", "quotient-remainder: ids that share a quotient",
       whole(FIELD(architecture.qr_collisions), 1)},

      {"Loss", "--loss-function", "mse", "LOSS", "mse, bce, or wbce (weighted by class)",
       choice(FIELD(loss.function), {"mse", "bce", "wbce"})},
      {"Loss", "--loss-weights", "1.0-1.0", "X-X", "wbce: weights of negatives and of positives",
       [](Options& o, const std::string& name, const std::string& text) -> Status {
         o.loss.weights = TUTTI_TRY(dlrm::parse_weights(name, text));
         return {};
       }},
      {"Loss", "--loss-threshold", "0.0", "X", "in (0, 1): predictions are held within [X, 1-X]",
       real(FIELD(loss.threshold), 0, 1)},
      {"Loss", "--round-targets", "False", "BOOL", "random targets are 0 or 1", boolean(FIELD(data.round_targets))},

      {"Data", "--data-generation", "random", "KIND", "random, synthetic (from --data-trace-file) or dataset",
       choice(FIELD(data.generation), {"random", "dataset", "synthetic"})},
      {"Data", "--data-size", "1", "N", "random samples", whole(FIELD(data.size), 1)},
      {"Data", "--num-batches", "0", "N", "batches of an epoch, instead of --data-size; 0: all",
       whole(FIELD(data.num_batches), 0)},
      {"Data", "--rand-data-dist", "uniform", "DIST", "distribution of random lookups: uniform or gaussian",
       choice(FIELD(data.distribution), {"uniform", "gaussian"})},
      {"Data", "--rand-data-min", "0", "X", "gaussian: lowest row", real(FIELD(data.minimum))},
      {"Data", "--rand-data-max", "1", "X", "gaussian: highest row", real(FIELD(data.maximum))},
      {"Data", "--rand-data-mu", "-1", "X", "gaussian: mean; -1: the middle", real(FIELD(data.mu))},
      {"Data", "--rand-data-sigma", "1", "X", "gaussian: deviation", real(FIELD(data.sigma), 0)},
      {"Data", "--num-indices-per-lookup", "10", "N", "random lookups of a bag, at most",
       whole(FIELD(data.indices_per_lookup), 1)},
      {"Data", "--num-indices-per-lookup-fixed", "False", "BOOL", "draw the same number of lookups for every bag",
       boolean(FIELD(data.indices_per_lookup_fixed))},
      {"Data", "--data-trace-file", "./input/dist_emb_j.log", "FILE",
       "profile of a table's accesses; j: the number of the table", text_of(FIELD(data.trace_file))},
      {"Data", "--data-trace-enable-padding", "False", "BOOL",
       "synthetic: no new rows once as many were drawn as the largest distance", boolean(FIELD(data.trace_padding))},
      {"Data", "--data-set", "", "NAME", "kaggle or terabyte: the file must have that many days",
       [](Options& o, const std::string& name, const std::string& text) -> Status {
         if (!text.empty()) (void)TUTTI_TRY(choose(name, text, {"kaggle", "terabyte"}));
         o.data.data_set = text;
         return {};
       }},
      {"Data", "--raw-data-file", "", "FILE", "refused: tutti data criteo reads text", text_of(FIELD(data.raw_file))},
      {"Data", "--processed-data-file", "", "FILE", "what tutti data criteo or tutti data clicks has written",
       text_of(FIELD(data.processed_file))},
      {"Data", "--test-data-file", "", "FILE", "MLPerf's binary of the day for tests (the same file)",
       text_of(FIELD(data.test_file))},
      {"Data", "--max-ind-range", "-1", "N", "ids are taken modulo this; -1: as they are",
       whole(FIELD(data.max_ind_range), -1)},
      {"Data", "--data-sub-sample-rate", "0.0", "X", "refused: give it to tutti data criteo",
       real(FIELD(data.sub_sample_rate), 0, 1)},
      {"Data", "--num-workers", "0", "N", "batches that a thread reads ahead; 0: no thread",
       whole(FIELD(data.workers), 0, 1024)},

      {"Training", "--mini-batch-size", "1", "N", "samples of a batch, of all ranks together",
       whole(FIELD(training.batch), 1)},
      {"Training", "--nepochs", "1", "N", "times through the data", whole(FIELD(training.epochs), 1)},
      {"Training", "--learning-rate", "0.01", "X", "learning rate of the tables and both MLPs",
       real(FIELD(training.learning_rate), 0)},
      {"Training", "--optimizer", "sgd", "NAME", "sgd, rwsadagrad (one sum of squares a row) or adagrad",
       choice(FIELD(training.optimizer), {"sgd", "rwsadagrad", "adagrad"})},
      {"Training", "--lr-num-warmup-steps", "0", "N", "steps in which the learning rate rises",
       whole(FIELD(training.warmup_steps), 0)},
      {"Training", "--lr-decay-start-step", "0", "N", "step at which the learning rate begins to fall",
       whole(FIELD(training.decay_start), 0)},
      {"Training", "--lr-num-decay-steps", "0", "N", "steps in which the learning rate falls; 0: never",
       whole(FIELD(training.decay_steps), 0)},
      {"Training", "--numpy-rand-seed", "123", "N", "seed of weights and random data",
       whole(FIELD(training.seed), 0, std::numeric_limits<std::uint32_t>::max() - 1)},
      {"Training", "--mlperf-grad-accum-iter", "1", "N", "batches whose gradients make one step",
       whole(FIELD(training.accumulate), 1, 1 << 20)},
      {"Training", "--dtype", "float32", "TYPE", "float32 or float64",
       choice(FIELD(training.type), {"float32", "float64"})},

      {"Testing and inference", "--test-freq", "-1", "N",
       "batches between tests; there is also one after the last batch", whole(FIELD(report.test_freq), -1)},
      {"Testing and inference", "--test-mini-batch-size", "-1", "N", "samples of a test batch; -1: as in training",
       whole(FIELD(training.test_batch), -1)},
      {"Testing and inference", "--test-num-workers", "-1", "N", "batches read ahead; -1: as in training",
       whole(FIELD(data.test_workers), -1, 1024)},
      {"Testing and inference", "--quantize-mlp-with-bit", "32", "N", "inference: 8, 16 or 32",
       bits(FIELD(inference.mlp_bits), {"8", "16", "32"})},
      {"Testing and inference", "--quantize-emb-with-bit", "32", "N", "inference: 4, 8 or 32",
       bits(FIELD(inference.table_bits), {"4", "8", "32"})},
      {"Testing and inference", "--mlperf-acc-threshold", "0", "X", "stop at this accuracy (0.789)",
       real(FIELD(report.accuracy_threshold), 0, 1)},
      {"Testing and inference", "--mlperf-auc-threshold", "0", "X", "stop at this AUC (0.8025)",
       real(FIELD(report.auc_threshold), 0, 1)},

      {"Output", "--out-dir", "", "DIR", "folder for profiles, graphs and TensorBoard's files (.)",
       [](Options& o, const std::string&, const std::string& text) -> Status {
         if (text.empty()) return {};
         o.report.out_dir = text;
         o.report.tensor_board = "run_kaggle_pt";
         return {};
       }},
      {"Output", "--print-freq", "1", "N", "print a line every N batches", whole(FIELD(report.print_freq), 1)},
      {"Output", "--print-precision", "5", "N", "digits of arrays in --debug-mode",
       whole(FIELD(report.print_precision), 0, 17)},
      {"Output", "--tensor-board-filename", "", "NAME",
       "folder of TensorBoard's event files, in --out-dir (run_kaggle_pt if that is given, else none)",
       [](Options& o, const std::string&, const std::string& text) -> Status {
         if (!text.empty()) o.report.tensor_board = text;
         return {};
       }},
      {"Output", "--save-model", "", "DIR", "save the model to this folder when a test is the best yet, or at the end",
       text_of(FIELD(report.save_model))},
      {"Output", "--save-freq", "0", "N", "also save the model every N batches; 0: do not",
       whole(FIELD(report.save_freq), 0)},
      {"Output", "--load-model", "", "DIR", "continue training this model, or score with it (--inference-only)",
       text_of(FIELD(report.load_model))},
      {"Checkpoints", "--save-dir", "", "DIR",
       "save checkpoints to this folder, which all nodes share; saves at the end, and when asked to stop",
       for_checkpoints()},
      {"Checkpoints", "--save-interval", "0", "N", "save every N steps too; 0: do not", for_checkpoints()},
      {"Checkpoints", "--keep", "0", "N", "keep at most N checkpoints; 0: keep all", for_checkpoints()},
      {"Checkpoints", "--keep-every", "0", "N",
       "never delete checkpoints whose step is a multiple of N; 0: no exception", for_checkpoints()},
      {"Checkpoints", "--resume", "auto", "HOW",
       "auto: resume from the newest valid checkpoint in --save-dir, if there is one; never; or PATH",
       for_checkpoints()},
      {"Checkpoints", "--memory-copy-interval", "0", "N",
       "copy weights and tables every N steps to memory that tutti run keeps, to resume from after a restart; 0: never",
       for_checkpoints()},

      {"Ranks", "--placement", "auto", "HOW",
       "placement of tables: auto (by cost), table-wise, count (as dlrm_s_pytorch.py), row-wise, column-wise or "
       "replicated",
       [](Options& o, const std::string& name, const std::string& text) -> Status {
         (void)TUTTI_TRY(choose(name, text, dlrm::placement_names()));
         o.placement.placement = text;
         return {};
       }},
      {"Ranks", "--plan", "", "FILE", "placement of tables from a JSON file", text_of(FIELD(placement.plan_file))},
      {"Ranks", "--wire", "exact", "FORM", "format of rows that are sent between hosts: exact, bf16 or int8",
       choice(FIELD(placement.wire), {"exact", "bf16", "int8"})},
      {"Ranks", "--table-folder", "", "DIR",
       "keep tables in mapped files in this folder, so that they can be larger than memory",
       text_of(FIELD(placement.folder))},
      {"Ranks", "--table-cache", "", "BYTES", "with --table-folder: memory of a rank for the most used rows (1GiB)",
       [](Options& o, const std::string& name, const std::string& text) -> Status {
         if (text.empty()) return {};
         const auto bytes = parse_bytes(text);
         if (!bytes || *bytes > std::uint64_t(kMost))
           return usage(name + " needs a size such as 4GiB, not '" + text + "'");
         o.placement.cached_bytes = std::int64_t(*bytes);
         return {};
       }},
      {"Ranks", "--dist-backend", "", "NAME", "communication backend: tutti (default), gloo or mpi",
       [](Options& o, const std::string&, const std::string& text) -> Status {
         for (const char* known : {"", "tutti", "gloo", "mpi"}) {
           if (text == known) return o.backend = text, Status();
         }
         return usage(fmt::format("--dist-backend {} is none that train_dlrm, which computes on CPUs, can use", text),
                      "known are tutti, gloo and mpi");
       }},
  };
  return options;
}

const std::vector<FlagOption>& flag_options() {
  static const std::vector<FlagOption> flags = {
      {"Architecture", "--arch-interaction-itself", "dot: products of a vector with itself, too",
       FIELD(architecture.interaction_itself)},
      {"Smaller tables", "--md-flag", "mixed dimensions: fewer columns for larger tables", FIELD(architecture.md)},
      {"Smaller tables", "--md-round-dims", "mixed dimensions: powers of two", FIELD(architecture.md_round_dims)},
      {"Smaller tables", "--qr-flag", "quotient-remainder: two small tables for a large one", FIELD(architecture.qr)},
      {"Data", "--memory-map", "the dataset is mapped, not read into memory: always so", FIELD(data.memory_map)},
      {"Data", "--mlperf-bin-loader", "the file is MLPerf's binary (40 int32 a sample)", FIELD(data.mlperf_binary)},
      {"Data", "--mlperf-bin-shuffle", "take the batches of MLPerf's binary in random order",
       FIELD(data.mlperf_shuffle)},
      {"Training", "--dlrm-gradient-scale",
       "tables learn as many times faster as there are ranks, as dlrm_s_pytorch.py does",
       FIELD(training.reference_gradient_scale)},
      {"Testing and inference", "--inference-only", "score without training", FIELD(inference.only)},
      {"Testing and inference", "--mlperf-logging", "print recall, precision, f1, ap and auc of tests",
       FIELD(report.mlperf_logging)},
      {"Ranks", "--no-shared-tables", "exchange rows by messages on one host too, as between hosts",
       FIELD(placement.links_only)},
      {"Output", "--print-time",
       "print the milliseconds of a batch (else -1); with --mlperf-logging from batch to batch, reading included",
       FIELD(report.print_time)},
      {"Output", "--print-wall-time", "print the time of day in each line", FIELD(report.print_wall_time)},
      {"Output", "--print-all", "print on every rank", FIELD(report.print_all)},
      {"Output", "--debug-mode", "print the architecture, the data, and all parameters before and after",
       FIELD(report.debug)},
      {"Output", "--enable-profiling", "write tables of timings and a Chrome trace to --out-dir",
       FIELD(report.profiling)},
      {"Output", "--plot-compute-graph", "write the model as DOT and SVG to --out-dir", FIELD(report.compute_graph)},
      {"Output", "--json", "end with one line of JSON on standard output", FIELD(report.json)},
  };
  return flags;
}

struct Legacy {
  const char* name;
  bool takes_value;
  std::string_view accepted;  // a value that says what is so anyway; "-": none
  const char* why;
  const char* instead;
};
constexpr Legacy kLegacy[] = {
    {"--activation-function", true, "relu",
     "dlrm_s_pytorch.py never looks at it: hidden layers are ReLU, the last a sigmoid", "leave it out"},
    {"--sync-dense-params", true, "-", "it belongs to several GPUs driven by one process, which train_dlrm is not",
     "leave it out; ranks always have equal MLPs"},
    {"--dataset-multiprocessing", true, "-", "train_dlrm does not read text", "tutti data criteo uses all cores"},
    {"--data-randomize", true, "-", "samples come in the order in which tutti data criteo has written them",
     "give it to tutti data criteo as --randomize"},
    {"--save-onnx", false, "-", "there is no ONNX export",
     "--save-model writes safetensors, which Python reads; examples/dlrm_score scores from them in C++"},
    {"--use-gpu", false, "-", "the tables of train_dlrm lie in the memory of hosts and its MLPs compute there",
     "leave it out"},
};

}  // namespace

#undef FIELD

void DlrmCommandLine::declare(CLI::App& app) {
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const auto add_value = [&](const ValueOption& option) {
    auto& value = values_[option.name] = option.by_default;
    const auto words = *option.by_default ? fmt::format("{} ({})", option.words, option.by_default) : option.words;
    app.add_option(option.name, value, words)->group(option.group)->type_name(option.type);
  };
  const auto add_flag = [&](const FlagOption& option) {
    app.add_flag(option.name, flags_[option.name] = false, option.words)->group(option.group);
  };
  // A group's options stand together, flags after values.
  std::vector<std::string> groups;
  for (const auto& option : value_options()) {
    if (groups.empty() || groups.back() != option.group) groups.push_back(option.group);
  }
  for (const auto& group : groups) {
    for (const auto& option : value_options()) {
      if (option.group == group) add_value(option);
    }
    for (const auto& option : flag_options()) {
      if (option.group == group) add_flag(option);
    }
  }
  app.add_flag("--save-dir-per-node", flags_["--save-dir-per-node"] = false,
               "--save-dir is a different folder on each node, for the files of that node's ranks")
      ->group("Checkpoints");
  for (const auto& option : kLegacy) {  // not in the help
    legacy_[option.name] = option.takes_value ? app.add_option(option.name, unused_, "")->group("")
                                              : app.add_flag(std::string(option.name))->group("");
  }
}

Result<DlrmCommand> DlrmCommandLine::interpret() const {
  for (const auto& option : kLegacy) {
    const auto* given = legacy_.at(option.name);
    if (given->count() == 0) continue;
    const auto value = option.takes_value ? given->results().back() : std::string();
    if (value == option.accepted) continue;
    return usage(fmt::format("{}{}{} is not here: {}", option.name, value.empty() ? "" : " ", value, option.why),
                 option.instead);
  }
  DlrmCommand command;
  Options& options = command.options;
  for (const auto& option : value_options()) TUTTI_TRY(option.set(options, option.name, values_.at(option.name)));
  for (const auto& option : flag_options()) option.field(options) = flags_.at(option.name);
  // As dlrm_s_pytorch.py, through the environment.
  const auto exchange = env("DLRM_ALLTOALL_IMPL").value_or("alltoall");
  options.placement.exchange =
      TableExchange(TUTTI_TRY(choose("DLRM_ALLTOALL_IMPL", exchange, {"alltoall", "scatter", "scatter_list"})));
  command.checkpoints = TUTTI_TRY(checkpoints());
  TUTTI_TRY(dlrm::check(options, command.checkpoints));
  return command;
}

// Tables may be most of a machine's memory, or more than it: there is no room for a copy of them.
Result<JobCheckpointOptions> DlrmCommandLine::checkpoints() const {
  JobCheckpointOptions made{
      .folder = values_.at("--save-dir"), .resume = values_.at("--resume"), .in_background = false};
  made.folder_per_node = flags_.at("--save-dir-per-node");
  made.interval = TUTTI_TRY(whole_number("--save-interval", values_.at("--save-interval"), 0, kMost));
  made.keep = int(TUTTI_TRY(whole_number("--keep", values_.at("--keep"), 0, 1 << 30)));
  made.keep_every = TUTTI_TRY(whole_number("--keep-every", values_.at("--keep-every"), 0, kMost));
  made.memory_copy_interval =
      TUTTI_TRY(whole_number("--memory-copy-interval", values_.at("--memory-copy-interval"), 0, kMost));
  return made;
}

std::vector<std::pair<std::string, std::string>> DlrmCommandLine::texts() const {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& [name, value] : values_) texts.emplace_back(name, value.empty() ? "not given" : value);
  texts.emplace_back("DLRM_ALLTOALL_IMPL", env("DLRM_ALLTOALL_IMPL").value_or("alltoall"));
  for (const auto& [name, value] : flags_) texts.emplace_back(name, value ? "given" : "not given");
  return texts;
}

}  // namespace tutti::cli
