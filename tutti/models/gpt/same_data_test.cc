// What of a checkpoint's data is not that of the options, and which options the sentence names. Manifests alone.
#include "tutti/models/gpt/same_data.h"

#include <gmock/gmock.h>

namespace tutti::gpt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Options small_run() {
  Options options;
  options.model.sequence_length = 8;
  return options;
}

TEST(SameData, AnotherSeedIsAnotherRun) {
  const Options saved = small_run();
  Options given = saved;
  Manifest manifest;
  manifest.facts.data["seed"] = std::int64_t(saved.model.seed);
  EXPECT_TRUE(check_same_seed(CheckpointReader::of_files("ck", manifest, {}), given).ok());
  given.model.seed = 5;
  const auto seed = check_same_seed(CheckpointReader::of_files("ck", manifest, {}), given);
  ASSERT_FALSE(seed.ok());
  EXPECT_EQ(seed.error().detail,
            "the checkpoint ck is of another run: it was saved with --seed 1234, and --seed 5 is given");
}

// Reported, not rejected: longer sequences at the end of a training are a way to train.
TEST(SameData, DataInAnotherOrderOrLengthIsReported) {
  const auto told = [](const Manifest& saved, const Options& given) {
    return changes_of_data(CheckpointReader::of_files("ck", saved, {}), given);
  };
  const Options saved = small_run();
  Manifest manifest;
  EXPECT_THAT(told(manifest, saved), IsEmpty()) << "of before: it does not say";
  for (const auto& [name, value] : data_values(saved)) manifest.facts.data[name] = value;
  manifest.facts.data["consumed_samples"] = std::int64_t(32);
  EXPECT_THAT(told(manifest, saved), IsEmpty());
  Options given = saved;
  given.model.sequence_length = 4;
  EXPECT_THAT(
      told(manifest, given),
      ElementsAre("the checkpoint ck was saved with --seq-length 8, and --seq-length 4 is given: the 32 samples "
                  "so far were of that length, so training repeats some of the data and skips some (--finetune "
                  "loads only the weights and restarts the data)"));
  given = saved;
  given.order = SampleOrder::kRandomSharded;
  EXPECT_THAT(
      told(manifest, given),
      ElementsAre(HasSubstr("was saved with --dataloader-type single, and --dataloader-type cyclic is given: the "
                            "32 samples so far were the first in that order")));
  manifest.facts.data["sample_order"] = std::int64_t(SampleOrder::kRandom);
  given.model.sequence_length = 4;
  ASSERT_THAT(told(manifest, given), SizeIs(2));
  EXPECT_THAT(told(manifest, given)[1], HasSubstr("saved with --dataloader-type cyclic --no-data-sharding, and "
                                                  "--dataloader-type cyclic is given"));
}

}  // namespace
}  // namespace tutti::gpt
