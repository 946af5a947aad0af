// Every pair of pretrain_gpt's options, on two ranks: the two train as one process does with those of them that say
// what is computed, or a sentence names both. (Grids of more ranks: gpt_matrix_test.cc.)
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <CLI/CLI.hpp>
#include <map>

#include "apps/options/pretrain_gpt_options.h"
#include "tests/harness/ranks.h"
#include "tutti/base/text.h"
#include "tutti/models/gpt/training.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr const char* kGptBase =
    "--num-layers 4 --hidden-size 16 --num-attention-heads 4 --seq-length 8 --max-position-embeddings 8 "
    "--vocab-size 31 --mock-data --micro-batch-size 1 --global-batch-size 4 --train-iters 3 --lr 1e-2 --fp64 "
    "--eval-iters 0 --log-interval 100 ";

enum class Computes {
  kSame,       // as without the option, on any number of ranks
  kOther,      // something else, which is the same on any number of ranks
  kByReplicas  // something else for each number of replicas
};
struct GptChoice {
  std::string options, slot;  // of one slot: values of one option
  Computes computes = Computes::kOther;
};

const std::vector<GptChoice>& gpt_choices() {
  static const std::vector<GptChoice> choices = {
      {"--tensor-model-parallel-size 2", "ranks", Computes::kSame},
      {"--tensor-model-parallel-size 2 --sequence-parallel", "ranks", Computes::kSame},
      {"--pipeline-model-parallel-size 2", "ranks", Computes::kSame},
      {"--context-parallel-size 2", "ranks", Computes::kSame},
      {"--pipeline-schedule fill-drain", "schedule", Computes::kSame},
      {"--pipeline-schedule zb-h1", "schedule", Computes::kSame},
      {"--pipeline-schedule zb-v", "schedule", Computes::kSame},
      {"--num-virtual-stages-per-pipeline-rank 2", "schedule", Computes::kSame},
      {"--use-distributed-optimizer", "sharded", Computes::kSame},
      {"--overlap-grad-reduce", "overlap", Computes::kSame},
      {"--recompute-granularity full", "recompute", Computes::kSame},
      {"--deterministic-mode", "deterministic", Computes::kSame},
      {"--loss-scale 1024", "scale", Computes::kSame},
      {"--use-tp-pp-dp-mapping", "mapping", Computes::kSame},
      {"--log-params-norm", "norm log", Computes::kSame},
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
      {"--dataloader-type cyclic", "order", Computes::kByReplicas},
      {"--dataloader-type cyclic --no-data-sharding", "order"},
      {"--eod-mask-loss", "mask"},
      {"--reset-position-ids", "reset positions"},
      {"--reset-attention-mask", "reset attention"},
  };
  return choices;
}

Result<gpt::Options> read_gpt(const std::string& more, int ranks) {
  cli::PretrainGptCommandLine line;
  CLI::App app("", "pretrain_gpt");
  line.declare(app);
  std::vector<std::string> words;
  for (const auto& word : split(kGptBase + more, ' '))
    if (!word.empty()) words.insert(words.begin(), word);
  app.parse(words);
  const auto tokenizer = TUTTI_TRY(line.tokenizer());
  return gpt::for_world(TUTTI_TRY(line.interpret(tokenizer.get())), ranks);
}

// On `ranks` threads: the loss of the last step.
double train_gpt(const gpt::Options& options, int ranks) {
  double loss = 0;
  const auto outcomes = test::run_threads(ranks, [&](Group& world) {
    const auto trained = gpt::pretrain(world, options, nullptr);
    if (world.rank() == 0) loss = trained.last_loss;
  });
  EXPECT_EQ(test::describe(outcomes), "");
  return loss;
}

std::string first_word(const std::string& text) { return text.substr(0, text.find(' ')); }

TEST(GptPairs, EachTrainsAsOneProcessOrIsRejected) {
  at::set_num_threads(1);
  const auto& choices = gpt_choices();
  std::map<std::string, double> alone;  // by what is computed
  int trained = 0;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const auto &one = choices[j], &other = choices[i];
      if (one.slot == other.slot) continue;
      const std::string both = one.options + " " + other.options;
      SCOPED_TRACE(both);
      const auto options = read_gpt(both, 2);
      if (!options.ok()) {
        const auto words = [&](const std::string& more) {
          const auto read = read_gpt(more, 2);
          return read.ok() ? std::string() : to_string(read.error());
        };
        const std::string rejected = words(both);
        if (rejected == words(one.options) || rejected == words(other.options)) continue;  // by itself already
        for (const auto& choice : {one, other}) EXPECT_THAT(rejected, HasSubstr(first_word(choice.options)));
        continue;
      }
      std::string computed;
      bool by_replicas = false;
      for (const auto& choice : {one, other}) {
        if (choice.computes != Computes::kSame) computed += choice.options + " ";
        by_replicas |= choice.computes == Computes::kByReplicas;
      }
      const double found = train_gpt(*options, 2);
      ++trained;
      if (by_replicas && options->batches.replicas > 1) continue;
      if (!alone.contains(computed)) alone[computed] = train_gpt(read_gpt(computed, 1).or_throw(), 1);
      EXPECT_NEAR(found, alone[computed], 1e-9);
    }
  }
  EXPECT_GT(trained, 400);
}

}  // namespace
}  // namespace tutti
