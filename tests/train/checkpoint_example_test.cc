// examples/checkpoint: killed or asked to stop, and started again, it prints the losses of a run that was not.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>

#include "tests/launch/running.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

using testing::Folder;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> command(int ranks, const std::string& folder) {
  return {TUTTI_COMMAND, "run", "-n", std::to_string(ranks), "--", EXAMPLES "/checkpoint", folder, "2000"};
}
const std::map<std::string, std::string> kOneThread = {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}};

std::vector<std::string> losses(const std::string& out) {
  auto lines = split(out, '\n');
  std::erase_if(lines, [](const std::string& line) { return line.find("loss") == std::string::npos; });
  return lines;
}

TEST(CheckpointExample, ResumedRunsHaveTheLossesOfOneThatWasNotInterrupted) {
  const Folder whole_folder, folder;
  const auto whole = testing::run(command(2, whole_folder.path()), kOneThread);
  ASSERT_EQ(whole.code, 0) << whole.err;
  const auto expected = losses(whole.out);
  ASSERT_EQ(expected.size(), 200u);
  {
    testing::Running killed(command(2, folder.path()), kOneThread);
    killed.await_out("step 120: ");
    killed.send(SIGKILL);
    EXPECT_TRUE(killed.nobody_left());
  }
  {
    testing::Running stopped(command(2, folder.path()), kOneThread);
    stopped.await_out("step 300: ");
    stopped.send(SIGTERM);
    const auto ended = stopped.wait();
    EXPECT_EQ(ended.code, 75) << ended.err;
    EXPECT_THAT(expected, ::testing::IsSupersetOf(losses(ended.out)));
    EXPECT_THAT(ended.out, Not(HasSubstr("step 10: "))) << "it resumed";
  }
  const auto last = testing::run(command(2, folder.path()), kOneThread);
  ASSERT_EQ(last.code, 0) << last.err;
  const auto rest = losses(last.out);
  ASSERT_FALSE(rest.empty());
  EXPECT_TRUE(std::equal(rest.rbegin(), rest.rend(), expected.rbegin())) << last.out;
  EXPECT_LT(rest.size(), 175u) << "it resumed after step 300";
}

}  // namespace
}  // namespace tutti
