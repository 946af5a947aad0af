#include "tutti/training/same_run.h"

#include <gmock/gmock.h>

#include "tests/harness/checkpoints.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(SameRun, ACheckpointReportsTheFirstValueThatDiffers) {
  const test::TemporaryFolder folder;
  const CheckpointFacts facts{.step = 1, .values = {{"model", std::string("cnn")}, {"kind", std::int64_t(1)}}};
  ASSERT_TRUE(save_checkpoint(folder.path(), {}, facts).ok());
  const auto saved = CheckpointReader::open(folder.path());
  ASSERT_TRUE(saved.ok()) << to_string(saved.error());
  const auto compared = [&](const RunValue& value) {
    const Status same = check_same_run(*saved, saved->facts().values, {value});
    return same.ok() ? "" : to_string(same.error());
  };
  const RunValue kind{.name = "kind", .option = "--kind", .given = std::int64_t(1), .kinds = {"dot", "cat"}};
  EXPECT_EQ(compared(kind), "");
  EXPECT_EQ(compared({.name = "model", .option = "--model", .given = std::string("cnn")}), "");
  EXPECT_THAT(compared({.name = "model", .option = "--model", .given = std::string("mlp")}),
              AllOf(HasSubstr("it was saved with --model cnn, and mlp is given"),
                    HasSubstr("give the --model of the run that saved it")));
  RunValue other = kind;
  other.given = std::int64_t(0);
  EXPECT_THAT(compared(other), HasSubstr("it was saved with --kind cat, and dot is given"));
  RunValue absent{.name = "seed", .option = "--seed", .given = std::int64_t(1)};
  EXPECT_THAT(compared(absent), HasSubstr("it does not say with which --seed it was saved"));
  absent.may_lack = true;
  EXPECT_EQ(compared(absent), "");
}

}  // namespace
}  // namespace tutti
