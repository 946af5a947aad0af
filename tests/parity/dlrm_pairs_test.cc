// Every pair of train_dlrm's options, on two ranks: the two train as one process does with those of them that say what
// is computed, or a sentence names both.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <CLI/CLI.hpp>
#include <map>

#include "apps/options/train_dlrm_options.h"
#include "tests/harness/checkpoints.h"
#include "tests/harness/ranks.h"
#include "tutti/base/text.h"
#include "tutti/models/dlrm/training.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr const char* kDlrmBase =
    "--arch-embedding-size 40-300-7 --arch-sparse-feature-size 8 --arch-mlp-bot 5-8 --arch-mlp-top 6-1 "
    "--mini-batch-size 6 --data-size 20 --nepochs 2 --learning-rate 0.1 --dtype float64 --print-freq 1 "
    "--round-targets true ";

enum class DlrmComputes { kSame, kOther, kByRanks };
struct DlrmChoice {
  std::string options, slot;  // of one slot: values of one option
  DlrmComputes computes = DlrmComputes::kOther;
};

std::vector<DlrmChoice> dlrm_choices(const std::string& folder) {
  const auto kSame = DlrmComputes::kSame;
  return {
      {"--num-workers 2", "workers", kSame},
      {"--placement table-wise", "placement", kSame},
      {"--placement count", "placement", kSame},
      {"--placement row-wise", "placement", kSame},
      {"--placement column-wise", "placement", kSame},
      {"--placement replicated", "placement", kSame},
      {"--no-shared-tables", "shared", kSame},
      {"--wire bf16", "wire", DlrmComputes::kByRanks},
      {"--table-folder " + folder, "folder", kSame},
      {"--save-dir " + folder + "/run --resume never", "save", kSame},
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
      {"--dlrm-gradient-scale", "scale", DlrmComputes::kByRanks},
  };
}

Result<cli::DlrmCommand> read_dlrm(const std::string& more) {
  cli::DlrmCommandLine line;
  CLI::App app("", "train_dlrm");
  line.declare(app);
  std::vector<std::string> words;
  for (const auto& word : split(kDlrmBase + more, ' '))
    if (!word.empty()) words.insert(words.begin(), word);
  app.parse(words);
  return line.interpret();
}

struct DlrmTrained {
  std::string error;
  double loss = 0;
};

DlrmTrained train_dlrm(const cli::DlrmCommand& asked, int ranks) {
  DlrmTrained trained;
  const auto outcomes = test::run_threads(ranks, [&](Group& world) {
    auto sources = dlrm::open_sources(asked.options).or_throw();
    const auto& shape = sources.train->shape();
    const auto architecture =
        dlrm::architecture_of(asked.options.architecture, shape.dense_features, shape.rows, sources.where).or_throw();
    const auto result = dlrm::run(world, asked.options, architecture, sources, asked.checkpoints);
    if (world.rank() == 0) trained.loss = result.last_loss;
  });
  trained.error = test::describe(outcomes);
  return trained;
}

TEST(DlrmPairs, EachTrainsAsOneProcessOrIsRejected) {
  at::set_num_threads(1);
  const auto count = dlrm_choices("").size();
  std::map<std::string, double> alone;  // by what is computed
  int trained = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const test::TemporaryFolder folder;
      const auto choices = dlrm_choices(folder.path());
      const auto &one = choices[j], &other = choices[i];
      if (one.slot == other.slot) continue;
      const std::string both = one.options + " " + other.options;
      SCOPED_TRACE(both);
      const auto asked = read_dlrm(both);
      const auto found = asked.ok() ? train_dlrm(*asked, 2) : DlrmTrained{to_string(asked.error())};
      if (!found.error.empty()) {
        for (const auto& choice : {one, other})
          EXPECT_THAT(found.error, HasSubstr(choice.options.substr(0, choice.options.find(' '))));
        continue;
      }
      ++trained;
      std::string computed;
      bool by_ranks = false;
      for (const auto& choice : {one, other}) {
        if (choice.computes != DlrmComputes::kSame) computed += choice.options + " ";
        by_ranks |= choice.computes == DlrmComputes::kByRanks;
      }
      if (by_ranks) continue;
      if (!alone.contains(computed)) {
        const auto single = train_dlrm(read_dlrm(computed).or_throw(), 1);
        EXPECT_EQ(single.error, "");
        alone[computed] = single.loss;
      }
      EXPECT_NEAR(found.loss, alone[computed], 1e-9);
    }
  }
  EXPECT_GT(trained, 300);
}

}  // namespace
}  // namespace tutti
