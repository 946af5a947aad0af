// Every pair of train_image's options: the two train together, as each does, or the table has the pair.
#include "tutti/models/image/option_pairs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>

#include "tests/harness/checkpoints.h"
#include "tests/harness/ranks.h"
#include "tutti/base/text.h"
#include "tutti/parallel/data_parallel/precision/mixed_precision.h"

namespace tutti {
namespace {

// Options of one slot are values of one option. `changes_result`: the loss is not that of a run without the option.
struct ImageChoice {
  std::string name, slot;
  bool changes_result;
  std::function<void(ImageTrainingOptions&)> choose;
};

std::vector<ImageChoice> image_choices(const std::string& folder) {
  using O = ImageTrainingOptions;
  std::vector<ImageChoice> choices = {
      {"--accumulate", "accumulate", true, [](O& o) { o.accumulate = 2; }},
      {"--logical-ranks", "logical", true, [](O& o) { o.parallel.logical_ranks = 4; }},
      {"--dropout", "dropout", true, [](O& o) { o.dropout = 0.2; }},
      {"--clip-grad-norm", "clip", true, [](O& o) { o.clip_grad_norm = 0.1; }},
      {"--optimizer adam", "optimizer", true, [](O& o) { o.rule = AdamOptions{}; }},
      {"--precision bf16", "precision", true, [](O& o) { o.parallel.autocast = DType::kBF16; }},
      {"--compress bf16", "compress", true, [](O& o) { o.compression = Compression::kBF16; }},
      {"--compress f16", "compress", true, [](O& o) { o.compression = Compression::kF16; }},
      {"--compress powersgd", "compress", true, [](O& o) { o.compression = Compression::kPowerSgd; }},
      {"--loader-threads", "loader", false, [](O& o) { o.loader_threads = 2; }},
      {"--check-replicas", "replicas", false, [](O& o) { o.check_replicas = 1; }},
      {"--check-gradients off", "check", false, [](O& o) { o.parallel.finite_check = FiniteCheck::kOff; }},
      {"--check-gradients before", "check", false, [](O& o) { o.parallel.finite_check = FiniteCheck::kReport; }},
      {"--deterministic", "deterministic", false, [](O& o) { o.deterministic = true; }},
      {"--views", "views", false, [](O& o) { o.parallel.gradients_as_views = true; }},
      {"--no-heap", "heap", false, [](O& o) { o.parallel.heap_tensors = false; }},
      {"--overlap on", "overlap", false, [](O& o) { o.parallel.overlap = Overlap::kOn; }},
      {"--overlap off", "overlap", false, [](O& o) { o.parallel.overlap = Overlap::kOff; }},
      {"--sharded on", "sharded", false, [](O& o) { o.sharding = Sharding::kOn; }},
      {"--sharded off", "sharded", false, [](O& o) { o.sharding = Sharding::kOff; }},
      {"--stage 2", "stage", false, [](O& o) { o.sharded_stage = 2; }},
      {"--save-dir", "save", false, [folder](O& o) { o.checkpoints.folder = folder, o.checkpoints.resume = "never"; }},
  };
  if (check_computes_in(DType::kF16).ok())
    choices.push_back({"--precision f16", "precision", true, [](O& o) { o.parallel.autocast = DType::kF16; }});
  return choices;
}

ImageDataset small_pictures(std::size_t count) {
  ImageDataset data{.rows = 28, .columns = 28, .classes = 10};
  for (std::size_t i = 0; i < count; ++i) data.labels.push_back(std::uint8_t(i * 7 % 10));
  for (std::size_t i = 0; i < count * 28 * 28; ++i) data.pixels.push_back(std::uint8_t(i * i / 13 + i / 784 * 31));
  return data;
}

struct ImageRun {
  std::string name;
  ImageTrainingOptions options;
};

// The last loss of each run, on two ranks: processes, since LibTorch's random numbers belong to a process.
std::vector<double> losses_of(const std::vector<ImageRun>& runs) {
  const ImageDataset train = small_pictures(48), test = small_pictures(4);
  const test::TemporaryFolder folder;
  const std::string file = folder.path() + "/losses";
  const auto body = [&](Group& world) {
    std::ofstream losses(file + std::to_string(world.rank()));
    for (const auto& run : runs)
      losses << fmt::format("{}\n", train_image_model(world, train, test, run.options).last_loss) << std::flush;
  };
  const auto outcomes = test::run_processes(2, body, {.watchdog = 280});
  std::vector<double> losses;
  for (const auto& line : split(test::file_text(file + "0"), '\n'))
    if (const auto loss = parse_double(line)) losses.push_back(*loss);
  EXPECT_EQ(test::describe(outcomes), "") << (losses.size() < runs.size() ? runs[losses.size()].name : "");
  return losses;
}

TEST(ImageOptionPairs, EachTrainsOrIsRejected) {
  const test::TemporaryFolder folder;
  const auto choices = image_choices("");
  std::vector<ImageRun> runs;
  const auto run_of = [&](const std::vector<std::size_t>& chosen) {
    ImageRun run{.options = {.batch_size = 2, .max_steps = 3, .log_every = -1}};
    for (const auto number : chosen) {
      image_choices(folder.path() + "/" + std::to_string(runs.size()))[number].choose(run.options);
      run.name += choices[number].name + " ";
    }
    if (run.options.compression == Compression::kPowerSgd) run.options.max_steps = 11;  // step 10: it compresses
    return run;
  };
  struct Pair {
    std::size_t run;
    std::vector<std::size_t> computes;  // those of the two that change the result
  };
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      auto run = run_of({j, i});
      if (choices[i].slot == choices[j].slot || !check_pairs(run.options).ok()) continue;
      Pair pair{.run = runs.size()};
      for (const auto number : {j, i})
        if (choices[number].changes_result) pair.computes.push_back(number);
      pairs.push_back(std::move(pair));
      runs.push_back(std::move(run));
    }
  }
  std::map<std::pair<std::vector<std::size_t>, std::int64_t>, std::size_t> alone;  // by what and how many steps
  for (const auto& [run, computes] : pairs) {
    const std::int64_t steps = runs[run].options.max_steps;
    if (computes.size() > 1 || !alone.insert({{computes, steps}, runs.size()}).second) continue;
    runs.push_back(run_of(computes));
    runs.back().options.max_steps = steps;
  }
  const auto losses = losses_of(runs);
  ASSERT_EQ(losses.size(), runs.size());
  for (const auto& [run, computes] : pairs) {
    EXPECT_TRUE(std::isfinite(losses[run])) << runs[run].name;
    if (computes.size() > 1) continue;
    const auto expected = alone.at({computes, runs[run].options.max_steps});
    EXPECT_NEAR(losses[run], losses[expected], 1e-4) << runs[run].name << "beside " << runs[expected].name;
  }
}

TEST(ImageOptionPairs, TheTableHasOnlyOptionsThatItKnows) {
  for (const auto& pair : image_pairs())
    for (const auto name : {pair.one, pair.other}) {
      const auto options = image_options();
      EXPECT_TRUE(std::any_of(options.begin(), options.end(), [&](const auto& o) { return o.name == name; })) << name;
    }
}

}  // namespace
}  // namespace tutti
