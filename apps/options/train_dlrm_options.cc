#include "apps/options/train_dlrm_options.h"

#include <fmt/format.h>

#include "apps/options/checkpoint_options.h"
#include "apps/options/dlrm_model_options.h"
#include "tutti/base/env.h"
#include "tutti/base/text.h"
#include "tutti/models/dlrm/placing.h"

namespace tutti::cli {
namespace {

using dlrm::Options;

constexpr const char* kPlansCpus = "drop one of the two: the planner knows MLPs on CPUs";
constexpr const char* kLearnsNothing = "drop one of the two: inference learns nothing that could be saved";

const Condition kOnCpus = {
    "--device cpu", [](const OptionTexts& texts) { return texts.is_given("--device") && texts.is("--device", "cpu"); }};
const Condition kNcclOnCpus = {"--dist-backend nccl", [](const OptionTexts& texts) {
                                 return texts.is("--dist-backend", "nccl") && texts.is("--device", "cpu") &&
                                        !texts.is_given("--use-gpu");
                               }};
const Condition kResumesPath = {"--resume (a path)", [](const OptionTexts& texts) {
                                  return texts.is_active("--resume") && !texts.is("--resume", "never");
                                }};

// One of some numbers.
Setter bits(int& target, std::vector<std::string> known) {
  return value([&target, known = std::move(known)](const std::string& name, const std::string& text) -> Status {
    target = int(*parse_int(known[TUTTI_TRY(choose(name, text, known))]));
    return {};
  });
}

Setter size_in_bytes(std::int64_t& target) {
  return value([&target](const std::string& name, const std::string& text) -> Status {
    const auto bytes = parse_bytes(text);
    if (!bytes || *bytes > std::uint64_t(kMostWhole))
      return usage(name + " needs a size such as 4GiB, not '" + text + "'");
    target = std::int64_t(*bytes);
    return {};
  });
}

OptionGroup loss(Options& o) {
  return {"Loss",
          {{"--loss-function", "LOSS", "mse", "mse, bce, or wbce (weighted by class)",
            choice(o.loss.function, {"mse", "bce", "wbce"})},
           {"--loss-weights", "X-X", "1.0-1.0", "wbce: weights of negatives and of positives",
            value([&o](const std::string& name, const std::string& text) -> Status {
              o.loss.weights = TUTTI_TRY(dlrm::parse_weights(name, text));
              return {};
            })},
           {"--loss-threshold", "X", "0.0", "in (0, 1): predictions are held within [X, 1-X]",
            real(o.loss.threshold, 0, 1)},
           {"--round-targets", "BOOL", "False", "random targets are 0 or 1", dlrm_boolean(o.data.round_targets)}}};
}

OptionGroup data(Options& o) {
  return {
      "Data",
      {{"--data-generation", "KIND", "random", "random, synthetic (from --data-trace-file) or dataset",
        choice(o.data.generation, {"random", "dataset", "synthetic"})},
       {"--data-size", "N", "1", "random samples", whole(o.data.size, 1)},
       {"--num-batches", "N", "0", "batches of an epoch, instead of --data-size; 0: all", whole(o.data.num_batches, 0)},
       {"--rand-data-dist", "DIST", "uniform", "distribution of random lookups: uniform or gaussian",
        choice(o.data.distribution, {"uniform", "gaussian"})},
       {"--rand-data-min", "X", "0", "gaussian: lowest row", real(o.data.minimum)},
       {"--rand-data-max", "X", "1", "gaussian: highest row", real(o.data.maximum)},
       {"--rand-data-mu", "X", "-1", "gaussian: mean; -1: the middle", real(o.data.mu)},
       {"--rand-data-sigma", "X", "1", "gaussian: deviation", real(o.data.sigma, 0)},
       dlrm_lookup_options(o)[0],
       dlrm_lookup_options(o)[1],
       {"--data-trace-file", "FILE", "./input/dist_emb_j.log",
        "profile of a table's accesses; j: the number of the table", text(o.data.trace_file)},
       {"--data-trace-enable-padding", "BOOL", "False",
        "synthetic: no new rows once as many were drawn as the largest distance", dlrm_boolean(o.data.trace_padding)},
       {"--data-set", "NAME", "", "kaggle or terabyte: the file must have that many days",
        choice(o.data.data_set, {"kaggle", "terabyte"})},
       {"--raw-data-file", "FILE", "", "refused: tutti data criteo reads text", text(o.data.raw_file)},
       {"--processed-data-file", "FILE", "", "what tutti data criteo or tutti data clicks has written",
        text(o.data.processed_file)},
       {"--test-data-file", "FILE", "", "MLPerf's binary of the day for tests (the same file)", text(o.data.test_file)},
       {"--max-ind-range", "N", "-1", "ids are taken modulo this; -1: as they are", whole(o.data.max_ind_range, -1)},
       {"--data-sub-sample-rate", "X", "0.0", "refused: give it to tutti data criteo",
        real(o.data.sub_sample_rate, 0, 1)},
       {"--num-workers", "N", "0", "batches that a thread reads ahead; 0: no thread", whole(o.data.workers, 0, 1024)},
       {"--memory-map", "", "", "the dataset is mapped, not read into memory: always so", flag(o.data.memory_map)},
       {"--mlperf-bin-loader", "", "", "the file is MLPerf's binary (40 int32 a sample)", flag(o.data.mlperf_binary),
        excludes("--data-set", "drop --data-set: MLPerf's binary does not say how many days it has")},
       {"--mlperf-bin-shuffle", "", "", "take the batches of MLPerf's binary in random order",
        flag(o.data.mlperf_shuffle)}}};
}

OptionGroup training(Options& o) {
  return {
      "Training",
      {{"--mini-batch-size", "N", "1", "samples of a batch, of all ranks together", whole(o.training.batch, 1)},
       {"--nepochs", "N", "1", "times through the data", whole(o.training.epochs, 1)},
       {"--learning-rate", "X", "0.01", "learning rate of the tables and both MLPs", real(o.training.learning_rate, 0)},
       dlrm_optimizer_option(o),
       {"--lr-num-warmup-steps", "N", "0", "steps in which the learning rate rises", whole(o.training.warmup_steps, 0)},
       {"--lr-decay-start-step", "N", "0", "step at which the learning rate begins to fall",
        whole(o.training.decay_start, 0)},
       {"--lr-num-decay-steps", "N", "0", "steps in which the learning rate falls; 0: never",
        whole(o.training.decay_steps, 0)},
       {"--numpy-rand-seed", "N", "123", "seed of weights and random data",
        whole(o.training.seed, 0, std::numeric_limits<std::uint32_t>::max() - 1)},
       {"--mlperf-grad-accum-iter", "N", "1", "batches whose gradients make one step",
        whole(o.training.accumulate, 1, 1 << 20)},
       {"--dtype", "TYPE", "float32", "float32 or float64", choice(o.training.type, {"float32", "float64"})},
       {"--dlrm-gradient-scale", "", "",
        "tables learn as many times faster as there are ranks, as dlrm_s_pytorch.py does",
        flag(o.training.reference_gradient_scale)}}};
}

OptionGroup testing(Options& o) {
  return {
      "Testing and inference",
      {{"--test-freq", "N", "-1", "batches between tests; there is also one after the last batch",
        whole(o.report.test_freq, -1)},
       {"--test-mini-batch-size", "N", "-1", "samples of a test batch; -1: as in training",
        whole(o.training.test_batch, -1)},
       {"--test-num-workers", "N", "-1", "batches read ahead; -1: as in training",
        whole(o.data.test_workers, -1, 1024)},
       {"--quantize-mlp-with-bit", "N", "32", "inference: 8, 16 or 32", bits(o.inference.mlp_bits, {"8", "16", "32"})},
       {"--quantize-emb-with-bit", "N", "32", "inference: 4, 8 or 32", bits(o.inference.table_bits, {"4", "8", "32"}),
        excludes("--qr-flag", kPlainTablesOnly) + excludes("--md-flag", kPlainTablesOnly)},
       {"--mlperf-acc-threshold", "X", "0", "stop at this accuracy (0.789)", real(o.report.accuracy_threshold, 0, 1)},
       {"--mlperf-auc-threshold", "X", "0", "stop at this AUC (0.8025)", real(o.report.auc_threshold, 0, 1)},
       {"--inference-only", "", "", "score without training", flag(o.inference.only),
        excludes("--save-model", kLearnsNothing) + excludes("--save-dir", kLearnsNothing) +
            excludes("--memory-copy-interval", kLearnsNothing)},
       {"--mlperf-logging", "", "", "print recall, precision, f1, ap and auc of tests",
        flag(o.report.mlperf_logging)}}};
}

OptionGroup output(Options& o) {
  return {
      "Output",
      {{"--out-dir", "DIR", "", "folder for profiles, graphs and TensorBoard's files (.)",
        value([&o](const std::string&, const std::string& text) {
          o.report.out_dir = text;
          o.report.tensor_board = "run_kaggle_pt";
          return Status();
        })},
       {"--print-freq", "N", "1", "print a line every N batches", whole(o.report.print_freq, 1)},
       {"--print-precision", "N", "5", "digits of arrays in --debug-mode", whole(o.report.print_precision, 0, 17)},
       {"--tensor-board-filename", "NAME", "",
        "folder of TensorBoard's event files, in --out-dir (run_kaggle_pt if that is given, else none)",
        text(o.report.tensor_board)},
       {"--save-model", "DIR", "", "save the model to this folder when a test is the best yet, or at the end",
        text(o.report.save_model)},
       {"--save-freq", "N", "0", "also save the model every N batches; 0: do not", whole(o.report.save_freq, 0)},
       {"--load-model", "DIR", "", "continue training this model, or score with it (--inference-only)",
        text(o.report.load_model),
        excludes(kResumesPath, "--load-model", "drop one of the two: both say where to start")},
       {"--print-time", "", "",
        "print the milliseconds of a batch (else -1); with --mlperf-logging from batch to batch, reading included",
        flag(o.report.print_time)},
       {"--print-wall-time", "", "", "print the time of day in each line", flag(o.report.print_wall_time)},
       {"--print-all", "", "", "print on every rank", flag(o.report.print_all)},
       {"--debug-mode", "", "", "print the architecture, the data, and all parameters before and after",
        flag(o.report.debug)},
       {"--enable-profiling", "", "", "write tables of timings and a Chrome trace to --out-dir",
        flag(o.report.profiling)},
       {"--plot-compute-graph", "", "", "write the model as DOT and SVG to --out-dir", flag(o.report.compute_graph)},
       {"--json", "", "", "end with one line of JSON on standard output", flag(o.report.json)}}};
}

OptionGroup ranks(TrainDlrmCommand& command) {
  Options& o = command.options;
  return {
      "Ranks",
      {{"--placement", "HOW", "auto",
        "placement of tables: auto (by cost), table-wise, count (as dlrm_s_pytorch.py), row-wise, column-wise or "
        "replicated",
        choice(o.placement.placement, placement_names())},
       {"--plan", "FILE", "", "placement of tables from a JSON file", text(o.placement.plan_file),
        excludes("--placement", "drop one of the two: both say where tables are")},
       dlrm_exchange_options(o)[0],
       {"--table-folder", "DIR", "",
        "keep tables in mapped files in this folder, so that they can be larger than memory", text(o.placement.folder)},
       {"--table-cache", "BYTES", "", "with --table-folder: memory of a rank for the most used rows (1GiB)",
        size_in_bytes(o.placement.cached_bytes)},
       device_option(o.device, {}),
       {"--use-gpu", "", "", "compute the MLPs on a GPU, as --device cuda; tables stay in the memory of the host",
        flag_only(), excludes(kOnCpus, "drop one of the two") + excludes("--device auto", "drop one of the two")},
       {"--dist-backend", "NAME", "", "communication backend: tutti (default), gloo, mpi, or nccl for GPUs",
        choice(o.backend, {"tutti", "gloo", "mpi", "nccl"}),
        rejects(kNcclOnCpus, "NCCL is for GPUs", "add --use-gpu, or give tutti, gloo or mpi")},
       dlrm_exchange_options(o)[1],
       {"--parallel", "HOW", "given",
        "given: as the options say; auto: choose the placement of tables by what this cluster measures, where "
        "--placement and --plan are not given",
        choice_of<bool>(command.chooses_parallel, {{"given", false}, {"auto", true}}),
        excludes("--parallel auto", "--use-gpu", kPlansCpus) +
            excludes("--parallel auto", "--device cuda", kPlansCpus) +
            excludes("--parallel auto", "--device auto", kPlansCpus) +
            excludes("--parallel auto", "--table-folder", "drop one of the two: the planner knows tables in memory") +
            excludes("--parallel auto", "--inference-only", "drop one of the two: training is planned")},
       {"--cluster", "NAME", "",
        "with --parallel auto: choose for this preset or file of tutti plan measure (default: measured at the start)",
        text(command.cluster), needs("--parallel auto", "", "drop it")}}};
}

// Options of dlrm_s_pytorch.py that train_dlrm does not have.
const std::vector<ForeignOption>& foreign() {
  static const std::vector<ForeignOption> options = {
      {"--activation-function", true,
       "hidden layers are ReLU and the last one is a sigmoid, as dlrm_s_pytorch.py has them whatever this option says",
       "drop it", "relu"},
      {"--sync-dense-params", true, "it is about several GPUs of one process, and a rank of train_dlrm has one",
       "drop it; ranks always have equal MLPs"},
      {"--dataset-multiprocessing", true, "train_dlrm does not read text", "tutti data criteo uses all cores"},
      {"--data-randomize", true, "samples are in the order in which tutti data criteo has written them",
       "give it to tutti data criteo as --randomize"},
      {"--save-onnx", false, "there is no ONNX export",
       "--save-model writes safetensors, which Python reads; examples/dlrm_score scores from them in C++"},
  };
  return options;
}

Status check(Options& options, const OptionTexts& texts) {
  if (texts.is_given("--use-gpu")) options.device = "cuda";
  const auto exchange = env("DLRM_ALLTOALL_IMPL").value_or("alltoall");
  options.placement.exchange =
      TableExchange(TUTTI_TRY(choose("DLRM_ALLTOALL_IMPL", exchange, {"alltoall", "scatter", "scatter_list"})));
  return dlrm::check(options);
}

}  // namespace

OptionTable train_dlrm_options(TrainDlrmCommand& command) {
  Options& o = command.options;
  // Tables may be most of a machine's memory, or more than it: there is no room for a copy of them.
  command.checkpoints.in_background = false;
  return {.groups = {dlrm_architecture_options(o), dlrm_smaller_tables_options(o), loss(o), data(o), training(o),
                     testing(o), output(o), checkpoint_options(command.checkpoints), ranks(command)},
          .foreign = foreign(),
          .checks = {[&o](const OptionTexts& texts) { return check(o, texts); }}};
}

}  // namespace tutti::cli
