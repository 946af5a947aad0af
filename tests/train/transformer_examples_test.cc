// examples/transformer: the losses of every grid are those of one process, and a text is learned.
#include <gmock/gmock.h>

#include <fstream>

#include "tests/launch/running.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

std::string run(int ranks, std::vector<std::string> program) {
  std::vector<std::string> line;
  if (ranks > 1) line = {TUTTI_COMMAND, "run", "-n", std::to_string(ranks), "--"};
  program[0] = EXAMPLES "/" + program[0];
  line.insert(line.end(), program.begin(), program.end());
  const auto ended = tutti::testing::run(line, {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}});
  EXPECT_EQ(ended.code, 0) << ended.err;
  return ended.out;
}

std::vector<double> losses(const std::string& text) {
  std::vector<double> found;
  for (const auto& line : split(text, '\n'))
    if (const auto at = line.find("loss "); at != std::string::npos) found.push_back(std::stod(line.substr(at + 5)));
  return found;
}

TEST(TransformerExamples, MiniGptHasTheLossesOfOneProcessOnEveryGrid) {
  const auto alone = losses(run(1, {"mini_gpt"}));
  ASSERT_EQ(alone.size(), 4u);
  EXPECT_LT(alone.back(), 0.9 * alone.front()) << "nothing was learned";
  for (const int ranks : {2, 4, 8}) {
    const auto found = losses(run(ranks, {"mini_gpt"}));
    ASSERT_EQ(found.size(), alone.size()) << ranks << " ranks";
    for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(found[i], alone[i], 2e-9) << ranks << " ranks";
  }
}

TEST(TransformerExamples, AFewLinesLearnAText) {
  const std::string path = ::testing::TempDir() + "train_text.txt";
  std::ofstream text(path);
  for (int i = 0; i < 200; ++i) text << "every rank has windows of its own; line " << i % 10 << "\n";
  text.close();
  for (const int ranks : {1, 2}) {
    const auto found = losses(run(ranks, {"train_text", path}));
    ASSERT_EQ(found.size(), 3u);
    EXPECT_LT(found.back(), 1) << "a byte of this text is nearly known by those before it";
  }
}

}  // namespace
}  // namespace tutti
