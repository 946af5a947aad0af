// The program of examples/fully_shard learns, and the same on any number of ranks.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/launch/running.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

std::vector<double> losses(int ranks, const std::string& type) {
  const auto run =
      testing::run({TUTTI_COMMAND, "run", "-n", std::to_string(ranks), "--", EXAMPLES "/fully_shard", type},
                   {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}});
  EXPECT_EQ(run.code, 0) << run.err;
  std::vector<double> found;
  for (const auto& line : split(run.out, '\n'))
    if (line.find("step ") != std::string::npos) found.push_back(parse_double(line.substr(line.rfind(' ') + 1)).value_or(-1));
  EXPECT_EQ(found.size(), 4u) << run.out;
  found.resize(4);
  return found;
}

TEST(FullyShardExample, LearnsTheSameOnAnyNumberOfRanks) {
  const auto alone = losses(1, "f32");
  EXPECT_LT(alone[3], 0.5 * alone[0]);
  for (const int ranks : {2, 3}) {
    const auto found = losses(ranks, "f32");
    for (std::size_t k = 0; k < found.size(); ++k) EXPECT_NEAR(found[k], alone[k], 2e-3) << ranks << " ranks, " << k;
  }
}

TEST(FullyShardExample, LearnsInBf16) {
  const auto found = losses(2, "bf16");
  EXPECT_LT(found[3], 0.6 * found[0]);
}

}  // namespace
}  // namespace tutti
