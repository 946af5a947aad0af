// Every pair of a training program's options, on two ranks: the pair trains as it should, or is rejected with both
// names. And every pair that a table of options excludes is rejected with its hint.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "apps/options/option_parser.h"
#include "apps/options/pretrain_gpt_options.h"
#include "apps/options/train_dlrm_options.h"
#include "apps/options/train_image_options.h"
#include "tests/harness/checkpoints.h"
#include "tests/harness/ranks.h"
#include "tutti/base/text.h"
#include "tutti/models/dlrm/training.h"
#include "tutti/models/gpt/training.h"
#include "tutti/parallel/data_parallel/precision/mixed_precision.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

enum class Computes {
  kSame,    // as without the option
  kOther,   // something else, which is the same on any number of ranks
  kByRanks  // something else for each number of ranks
};

// Choices of one slot are values of one option.
struct Choice {
  std::string options, slot;
  Computes computes = Computes::kOther;
};

struct Run {
  std::string options;
  int ranks = 2;
};

struct Trained {
  std::string error;
  double loss = 0;
};

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words = split(text, ' ');
  std::erase(words, "");
  return words;
}

// The mistake in a command line, with its hint; none: empty.
std::string mistake_in(const cli::ProgramHelp& help, cli::OptionTable table, const std::string& options) {
  cli::OptionParser line(help, std::move(table));
  std::string mistake;
  line.parse(words_of(options), [&](const std::string&, const Error& error) {
    mistake = error.detail + (error.hint.empty() ? "" : " | " + error.hint);
  });
  return mistake;
}

// A command line that gives what the condition says: "--overlap on", "--swiglu", "--resume x" for "--resume (a path)".
std::string given(const cli::OptionTable& table, std::string_view condition) {
  const std::string text(condition.substr(0, condition.find(" (")));
  if (text.find(' ') != std::string::npos) return text;
  for (const auto& group : table.groups)
    for (const auto& option : group.options)
      if (option.name == text) return text + (option.setter.takes == cli::Setter::Takes::kNothing ? "" : " 7");
  return "the table has no " + text;
}

void expect_pairs_rejected(const cli::ProgramHelp& help, const std::function<cli::OptionTable()>& table) {
  const auto pairs = cli::OptionParser(help, table()).pairs();
  EXPECT_FALSE(pairs.empty());
  for (const auto& pair : pairs) {
    const auto shown = [](std::string_view name) { return name.substr(0, name.find(" (")); };
    EXPECT_EQ(mistake_in(help, table(), given(table(), pair.one) + " " + given(table(), pair.other)),
              fmt::format("{} and {} were both given | {}", shown(pair.one), shown(pair.other), pair.hint));
  }
}

// Options that no choice has, and why.
struct NotCrossed {
  const char* why;
  std::string options;
};

// Each option of the table is in the line of every run, in a choice, or in one list of those that are not crossed.
void expect_every_option(const cli::OptionTable& table, const std::string& line, const std::vector<Choice>& choices,
                         const std::vector<NotCrossed>& not_crossed) {
  std::map<std::string, std::set<std::string>> where;
  const auto add = [&](const std::string& options, const std::string& place) {
    for (const std::string& word : words_of(options))
      if (word.starts_with("--")) where[word].insert(place);
  };
  add(line, "crossed");
  for (const Choice& choice : choices) add(choice.options, "crossed");
  for (const NotCrossed& list : not_crossed) add(list.options, list.why);
  for (const auto& group : table.groups) {
    for (const auto& option : group.options) {
      EXPECT_EQ(where[option.name].size(), 1u) << option.name << " belongs into a choice, or into one list";
      where.erase(option.name);
    }
  }
  for (const auto& [name, places] : where) ADD_FAILURE() << "the program has no " << name;
}

// The program under test: its choices, the mistake in a command line, the results of runs, and the ranks of the run
// that a pair is compared with.
struct Program {
  std::vector<Choice> choices;
  std::function<std::string(const std::string& options)> mistake;
  std::function<std::vector<Trained>(const std::vector<Run>& runs)> train;
  int ranks_to_compare = 1;
  bool compares_two = true;  // pairs of choices that both compute something else have a run to compare with
  double tolerance = 1e-9;
  // Whether a pair with a choice of Computes::kByRanks can be compared all the same; null: never.
  std::function<bool(const std::string& options)> computes_alike = nullptr;
};

std::string first_word(const std::string& text) { return text.substr(0, text.find(' ')); }

// How many pairs trained.
int cross(const Program& program) {
  struct Pair {
    const Choice *one, *other;
    std::size_t run;
    std::optional<std::size_t> expected;
  };
  std::vector<Pair> pairs;
  std::vector<Run> runs;
  std::map<std::string, std::size_t> expected;  // runs by what they compute
  for (const Choice& other : program.choices) {
    for (const Choice& one : program.choices) {
      if (&one == &other) break;
      if (one.slot == other.slot) continue;
      const std::string both = one.options + " " + other.options;
      SCOPED_TRACE(both);
      if (const std::string mistake = program.mistake(both); !mistake.empty()) {
        if (mistake == program.mistake(one.options) || mistake == program.mistake(other.options)) continue;
        for (const Choice* choice : {&one, &other}) EXPECT_THAT(mistake, HasSubstr(first_word(choice->options)));
        continue;
      }
      Pair pair{&one, &other, runs.size(), {}};
      runs.push_back({both});
      std::string computed;
      bool by_ranks = false;
      int others = 0;
      for (const Choice* choice : {&one, &other}) {
        if (choice->computes != Computes::kSame) computed += choice->options + " ", ++others;
        by_ranks |= choice->computes == Computes::kByRanks;
      }
      if (by_ranks && program.computes_alike) by_ranks = !program.computes_alike(both);
      if (!by_ranks && (others < 2 || program.compares_two)) {
        const auto [found, is_new] = expected.insert({computed, runs.size()});
        if (is_new) runs.push_back({computed, program.ranks_to_compare});
        pair.expected = found->second;
      }
      pairs.push_back(pair);
    }
  }
  const auto trained = program.train(runs);
  EXPECT_EQ(trained.size(), runs.size());
  int count = 0;
  for (const auto& [one, other, run, compared] : pairs) {
    SCOPED_TRACE(runs[run].options);
    if (!trained.at(run).error.empty()) {
      for (const Choice* choice : {one, other}) EXPECT_THAT(trained[run].error, HasSubstr(first_word(choice->options)));
      continue;
    }
    ++count;
    EXPECT_TRUE(std::isfinite(trained[run].loss));
    if (compared) {
      EXPECT_NEAR(trained[run].loss, trained.at(*compared).loss, program.tolerance);
    }
  }
  return count;
}

// ---- train_image

constexpr cli::ProgramHelp kImage = {"train_image", "", ""};

std::vector<Choice> image_choices() {
  const auto kSame = Computes::kSame;
  std::vector<Choice> choices = {
      {"--accumulate 2", "accumulate"},
      {"--logical-ranks 4", "logical"},
      {"--dropout 0.2", "dropout"},
      {"--clip-grad-norm 0.1", "clip"},
      {"--optimizer adam", "optimizer"},
      {"--momentum 0.5", "momentum"},
      {"--momentum 0.5 --nesterov", "momentum"},
      {"--weight-decay 0.01", "decay"},
      {"--precision bf16", "precision"},
      {"--compress bf16", "compress"},
      {"--compress f16", "compress"},
      {"--compress powersgd --max-steps 11", "compress"},  // it compresses from step 10 on
      {"--loader-threads 2", "loader", kSame},
      {"--check-replicas 1", "replicas", kSame},
      {"--check-gradients off", "check", kSame},
      {"--check-gradients before", "check", kSame},
      {"--deterministic", "deterministic", kSame},
      {"--views", "views", kSame},
      {"--no-heap", "heap", kSame},
      {"--overlap on", "overlap", kSame},
      {"--overlap off", "overlap", kSame},
      {"--sharded on", "sharded", kSame},
      {"--sharded off", "sharded", kSame},
      {"--stage 2", "stage", kSame},
      {"--save-dir FOLDER --resume never", "save", kSame},
  };
  if (check_computes_in(DType::kF16).ok()) choices.push_back({"--precision f16", "precision"});
  return choices;
}

ImageDataset small_pictures(std::size_t count) {
  ImageDataset data{.rows = 28, .columns = 28, .classes = 10};
  for (std::size_t i = 0; i < count; ++i) data.labels.push_back(std::uint8_t(i * 7 % 10));
  for (std::size_t i = 0; i < count * 28 * 28; ++i) data.pixels.push_back(std::uint8_t(i * i / 13 + i / 784 * 31));
  return data;
}

std::string image_options(const std::string& more) { return "--batch-size 2 --max-steps 3 --log-every -1 " + more; }

std::string image_mistake(const std::string& options) {
  cli::TrainImageCommand command;
  return mistake_in(kImage, train_image_options(command), image_options(options));
}

// The last loss of each run, on two processes: LibTorch's random numbers belong to a process.
std::vector<Trained> train_image(const std::vector<Run>& runs) {
  const ImageDataset train = small_pictures(48), test = small_pictures(4);
  const test::TemporaryFolder folder;
  const std::string file = folder.path() + "/losses";
  const auto body = [&](Group& world) {
    std::ofstream losses(file + std::to_string(world.rank()));
    for (std::size_t number = 0; number < runs.size(); ++number) {
      std::string options = image_options(runs[number].options);
      if (const auto at = options.find("FOLDER"); at != std::string::npos)
        options.replace(at, 6, folder.path() + "/" + std::to_string(number));
      cli::TrainImageCommand command;
      const auto mistake = mistake_in(kImage, train_image_options(command), options);
      if (!mistake.empty()) throw std::runtime_error(mistake);
      losses << fmt::format(
                    "{}\n",
                    train_image_model(world, train, test, command.training).training.last_loss.value_or(std::nan("")))
             << std::flush;
    }
  };
  const auto outcomes = test::run_processes(2, body, {.watchdog = 280});
  std::vector<Trained> trained;
  for (const auto& line : split(test::file_text(file + "0"), '\n'))
    if (const auto loss = parse_double(line)) trained.push_back({"", *loss});
  EXPECT_EQ(test::describe(outcomes), "") << (trained.size() < runs.size() ? runs[trained.size()].options : "");
  trained.resize(runs.size());
  return trained;
}

TEST(ImageOptionPairs, EachTrainsOrIsRejected) {
  EXPECT_GT(cross({image_choices(), image_mistake, train_image, 2, false, 1e-4}), 150);
}

TEST(ImageOptionPairs, NoOptionIsForgotten) {
  cli::TrainImageCommand command;
  expect_every_option(train_image_options(command), image_options(""), image_choices(),
                      {{"sizes and rates", "--epochs --lr --model --seed"},
                       {"what is read", "--data"},
                       {"tests/cuda has GPUs", "--device"},
                       {"what is written", "--save --trace --profile --tensorboard --json"},
                       {"when and where checkpoints are written",
                        "--save-dir-per-node --save-interval --keep --keep-every --memory-copy-interval"}});
}

TEST(ImageOptionPairs, TheExcludedAreRejected) {
  cli::TrainImageCommand command;
  expect_pairs_rejected(kImage, [&] { return train_image_options(command); });
}

// ---- train_dlrm

constexpr cli::ProgramHelp kDlrm = {"train_dlrm", "", ""};

std::string dlrm_options(const std::string& more) {
  return "--arch-embedding-size 40-300-7 --arch-sparse-feature-size 8 --arch-mlp-bot 5-8 --arch-mlp-top 6-1 "
         "--mini-batch-size 6 --data-size 20 --nepochs 2 --learning-rate 0.1 --dtype float64 --print-freq 1 "
         "--round-targets true " +
         more;
}

std::vector<Choice> dlrm_choices() {
  const auto kSame = Computes::kSame;
  return {
      {"--num-workers 2", "workers", kSame},
      {"--placement table-wise", "placement", kSame},
      {"--placement count", "placement", kSame},
      {"--placement row-wise", "placement", kSame},
      {"--placement column-wise", "placement", kSame},
      {"--placement replicated", "placement", kSame},
      {"--no-shared-tables", "shared", kSame},
      {"--wire bf16", "wire", Computes::kByRanks},
      {"--table-folder FOLDER", "folder", kSame},
      {"--save-dir FOLDER/run --resume never", "save", kSame},
      {"--test-freq 2", "tests", kSame},
      {"--mlperf-logging", "mlperf", kSame},
      {"--print-time", "time", kSame},
      {"--arch-interaction-op cat", "interaction"},
      {"--arch-interaction-itself", "itself"},
      {"--weighted-pooling fixed", "pooling"},
      {"--weighted-pooling learned", "pooling"},
      {"--md-flag", "md"},
      {"--qr-flag", "qr"},
      {"--qr-flag --qr-operation add", "qr"},
      {"--loss-function bce", "loss"},
      {"--loss-function wbce --loss-weights 0.3-2.0", "loss"},
      {"--loss-threshold 0.1", "threshold"},
      {"--rand-data-dist gaussian --rand-data-max 6", "distribution"},
      {"--num-indices-per-lookup-fixed true", "lookups"},
      {"--optimizer rwsadagrad", "optimizer"},
      {"--optimizer adagrad", "optimizer"},
      {"--lr-num-warmup-steps 3 --lr-decay-start-step 3", "warm up"},
      {"--lr-num-decay-steps 3", "decay"},
      {"--mlperf-grad-accum-iter 2", "accumulate"},
      {"--dlrm-gradient-scale", "scale", Computes::kByRanks},
  };
}

std::string dlrm_mistake(const std::string& options) {
  cli::TrainDlrmCommand command;
  return mistake_in(kDlrm, train_dlrm_options(command), dlrm_options(options));
}

std::vector<Trained> train_dlrm(const std::vector<Run>& runs) {
  std::vector<Trained> all;
  for (const Run& run : runs) {
    const test::TemporaryFolder folder;
    std::string options = dlrm_options(run.options);
    for (auto at = options.find("FOLDER"); at != std::string::npos; at = options.find("FOLDER"))
      options.replace(at, 6, folder.path());
    cli::TrainDlrmCommand command;
    EXPECT_EQ(mistake_in(kDlrm, train_dlrm_options(command), options), "");
    Trained trained;
    const auto outcomes = test::run_threads(run.ranks, [&](Group& world) {
      auto sources = dlrm::open_sources(command.options).or_throw();
      const auto& shape = sources.train->shape();
      const auto architecture =
          dlrm::architecture_of(command.options.architecture, shape.dense_features, shape.rows, sources.where)
              .or_throw();
      const auto result = dlrm::run(world, command.options, architecture, sources, command.checkpoints);
      if (world.rank() == 0) trained.loss = result.last_loss;
    });
    trained.error = test::describe(outcomes);
    all.push_back(std::move(trained));
  }
  return all;
}

TEST(DlrmOptionPairs, EachTrainsAsOneProcessOrIsRejected) {
  at::set_num_threads(1);
  EXPECT_GT(cross({dlrm_choices(), dlrm_mistake, train_dlrm}), 300);
}

TEST(DlrmOptionPairs, NoOptionIsForgotten) {
  cli::TrainDlrmCommand command;
  expect_every_option(
      train_dlrm_options(command), dlrm_options(""), dlrm_choices(),
      {{"sizes and rates",
        "--num-batches --md-threshold --md-temperature --md-round-dims --qr-threshold --qr-collisions --rand-data-min "
        "--rand-data-mu --rand-data-sigma --num-indices-per-lookup --numpy-rand-seed --test-mini-batch-size "
        "--test-num-workers --mlperf-acc-threshold --mlperf-auc-threshold"},
       {"what is read",
        "--data-generation --data-trace-file --data-trace-enable-padding --data-set --raw-data-file "
        "--processed-data-file --test-data-file --max-ind-range --data-sub-sample-rate --memory-map "
        "--mlperf-bin-loader --mlperf-bin-shuffle"},
       {"what is written",
        "--out-dir --print-precision --tensor-board-filename --save-model --save-freq --print-wall-time --print-all "
        "--debug-mode --enable-profiling --plot-compute-graph --json"},
       {"a model that is read and not trained",
        "--load-model --inference-only --quantize-mlp-with-bit --quantize-emb-with-bit"},
       {"files of the placement", "--plan --table-cache"},
       {"choose the placement: train_dlrm_test.cc", "--parallel --cluster"},
       {"this machine has one backend", "--dist-backend"},
       {"tests/cuda has GPUs", "--device --use-gpu"},
       {"when and where checkpoints are written",
        "--save-dir-per-node --save-interval --keep --keep-every --memory-copy-interval"}});
}

TEST(DlrmOptionPairs, TheExcludedAreRejected) {
  cli::TrainDlrmCommand command;
  expect_pairs_rejected(kDlrm, [&] { return train_dlrm_options(command); });
}

// ---- pretrain_gpt. Grids of more ranks: gpt_matrix_test.cc.

constexpr cli::ProgramHelp kGpt = {"pretrain_gpt", "", ""};

std::string gpt_options(const std::string& more) {
  return "--num-layers 4 --hidden-size 16 --num-attention-heads 4 --seq-length 8 --max-position-embeddings 8 "
         "--vocab-size 31 --mock-data --micro-batch-size 1 --global-batch-size 4 --train-iters 3 --lr 1e-2 --fp64 "
         "--eval-iters 0 --log-interval 100 " +
         more;
}

std::vector<Choice> gpt_choices() {
  const auto kSame = Computes::kSame;
  return {
      {"--tensor-model-parallel-size 2", "ranks", kSame},
      {"--tensor-model-parallel-size 2 --sequence-parallel", "ranks", kSame},
      {"--pipeline-model-parallel-size 2", "ranks", kSame},
      {"--context-parallel-size 2", "ranks", kSame},
      {"--pipeline-schedule fill-drain", "schedule", kSame},
      {"--pipeline-schedule zb-h1", "schedule", kSame},
      {"--pipeline-schedule zb-v", "schedule", kSame},
      {"--num-virtual-stages-per-pipeline-rank 2", "schedule", kSame},
      {"--use-distributed-optimizer", "sharded", kSame},
      {"--fsdp", "sharded", kSame},
      {"--overlap-grad-reduce", "overlap", kSame},
      {"--recompute-granularity full", "recompute", kSame},
      {"--recompute-granularity full --recompute-method block --recompute-num-layers 1", "recompute", kSame},
      {"--deterministic-mode", "deterministic", kSame},
      {"--loss-scale 1024", "scale", kSame},
      {"--use-tp-pp-dp-mapping", "mapping", kSame},
      {"--log-params-norm", "norm log", kSame},
      {"--swiglu", "activation"},
      {"--squared-relu", "activation"},
      {"--group-query-attention --num-query-groups 2", "groups"},
      {"--position-embedding-type rope", "positions"},
      {"--position-embedding-type none", "positions"},
      {"--normalization RMSNorm", "norm"},
      {"--disable-bias-linear", "bias"},
      {"--untie-embeddings-and-output-weights", "tied"},
      {"--attention-dropout 0", "attention dropout"},
      {"--hidden-dropout 0", "hidden dropout"},
      {"--optimizer sgd", "optimizer"},
      {"--clip-grad 0", "clip"},
      {"--lr-decay-style cosine", "decay"},
      {"--lr-warmup-iters 1", "warm up"},
      {"--weight-decay-incr-style linear --start-weight-decay 0 --end-weight-decay 0.1", "weight decay"},
      {"--dataloader-type cyclic", "order", Computes::kByRanks},
      {"--dataloader-type cyclic --no-data-sharding", "order"},
      {"--eod-mask-loss", "mask"},
      {"--reset-position-ids", "reset positions"},
      {"--reset-attention-mask", "reset attention"},
  };
}

// What `options` are on `ranks` ranks, or the mistake in them.
std::string plan_gpt(gpt::Options& planned, const std::string& options, int ranks) {
  cli::PretrainGptCommand command;
  auto table = pretrain_gpt_options(command);
  table.checks.emplace_back([&](const cli::OptionTexts&) -> Status {
    planned = TUTTI_TRY(gpt::for_world(command.options, ranks));
    return {};
  });
  return mistake_in(kGpt, std::move(table), gpt_options(options));
}

std::string gpt_mistake(const std::string& options) {
  gpt::Options planned;
  return plan_gpt(planned, options, 2);
}

std::vector<Trained> train_gpt(const std::vector<Run>& runs) {
  std::vector<Trained> all;
  for (const Run& run : runs) {
    gpt::Options planned;
    EXPECT_EQ(plan_gpt(planned, run.options, run.ranks), "");
    Trained trained;
    const auto outcomes = test::run_threads(run.ranks, [&](Group& world) {
      const auto result = gpt::pretrain(world, planned, nullptr);
      if (world.rank() == 0) trained.loss = result.training.last_loss.value_or(std::nan(""));
    });
    EXPECT_EQ(test::describe(outcomes), "");
    all.push_back(std::move(trained));
  }
  return all;
}

// Whether the result of a choice that depends on the number of replicas can be compared with one process.
bool has_one_replica(const std::string& options) {
  gpt::Options planned;
  return plan_gpt(planned, options, 2).empty() && planned.batches.replicas == 1;
}

TEST(GptOptionPairs, EachTrainsAsOneProcessOrIsRejected) {
  at::set_num_threads(1);
  EXPECT_GT(cross({gpt_choices(), gpt_mistake, train_gpt, 1, true, 1e-9, has_one_replica}), 400);
}

TEST(GptOptionPairs, NoOptionIsForgotten) {
  cli::PretrainGptCommand command;
  expect_every_option(
      pretrain_gpt_options(command), gpt_options(""), gpt_choices(),
      {{"sizes and rates",
        "--ffn-hidden-size --kv-channels --rotary-base --rotary-percent --norm-epsilon "
        "--make-vocab-size-divisible-by --init-method-std --seed --train-samples --min-lr --lr-decay-iters "
        "--lr-decay-samples --lr-warmup-samples --lr-warmup-fraction --lr-warmup-init --lr-wsd-decay-style "
        "--lr-wsd-decay-iters --lr-wsd-decay-samples --weight-decay --adam-beta1 --adam-beta2 --adam-eps "
        "--sgd-momentum --initial-loss-scale --min-loss-scale --loss-scale-window --hysteresis"},
       {"precisions in which no pair is compared to nine digits", "--bf16 --fp16"},
       {"what is read",
        "--data-path --split --train-data-path --valid-data-path --test-data-path --tokenizer-type --vocab-file "
        "--merge-file --tokenizer-model --tiktoken-pattern"},
       {"batches that grow: batch_schedule_test.cc",
        "--rampup-batch-size --step-batch-size-schedule --decrease-batch-size-if-needed"},
       {"grids of more ranks: gpt_matrix_test.cc",
        "--num-layers-per-virtual-pipeline-stage --microbatch-group-size-per-virtual-pipeline-stage "
        "--decoder-first-pipeline-num-layers --decoder-last-pipeline-num-layers "
        "--no-scatter-gather-tensors-in-pipeline"},
       {"choose other options: search_test.cc", "--parallel --cluster"},
       {"tests/cuda has GPUs", "--device"},
       {"this machine has one backend", "--distributed-backend --distributed-timeout-minutes"},
       {"evaluation", "--eval-interval --skip-train"},
       {"checkpoints: pretrain_gpt_checkpoint_test.cc",
        "--save-dir --save-dir-per-node --save-interval --keep --keep-every --resume --memory-copy-interval "
        "--async-save --load "
        "--ckpt-step --exit-on-missing-checkpoint --finetune --no-load-optim --no-save-optim"},
       {"what is written",
        "--log-throughput --log-num-zeros-in-grad --timing-log-level --timing-log-option --tensorboard-dir "
        "--tensorboard-log-interval --log-timers-to-tensorboard --trace --exit-interval --exit-duration-in-mins "
        "--json"},
       {"a model that is read and not trained", "--generate --generate-tokens --temperature --top-k"}});
}

TEST(GptOptionPairs, TheExcludedAreRejected) {
  cli::PretrainGptCommand command;
  expect_pairs_rejected(kGpt, [&] { return pretrain_gpt_options(command); });
}

}  // namespace
}  // namespace tutti
