// What `tutti run --report FILE` leaves behind, however the job ends, on every node.
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/launch/several_nodes.h"

namespace tutti::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class Reports : public SeveralNodes {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  json report(const std::string& name) const {
    const json parsed = json::parse(read_file(path(name)), nullptr, false);
    EXPECT_TRUE(parsed.is_object()) << "no report: " << read_file(path(name));
    return parsed;
  }
  // One rank each; the node's report is r0 or r1.
  Arguments node(int number, const Arguments& program) const {
    return with({"run", "-q", "--nnodes", "2", "--node-rank", std::to_string(number), "--master-addr", "127.0.0.1",
                 "--master-port", master_port_.text(), "--store-port", store_port_.text(), "-n", "1", "--report",
                 path("r" + std::to_string(number))},
                program);
  }
  const test::ReservedPort master_port_, store_port_;
};

TEST_F(Reports, OfAJobThatEndedWellTakeThePlaceOfAnOldOne) {
  std::ofstream(path("r")) << "of an earlier job";
  EXPECT_EQ(run({"run", "-q", "--job-id", "j", "--report", path("r"), "true"}).code, 0);
  const json told = report("r");
  EXPECT_EQ(told["job"], "j");
  EXPECT_EQ(told["outcome"], "succeeded");
  EXPECT_EQ(told["code"], 0);
  EXPECT_FALSE(told.contains("failure"));
}

TEST_F(Reports, OfARestartedJobDescribeItsEnd) {
  EXPECT_EQ(run({"run", "-q", "--max-restarts", "1", "--restart-pause", "1ms", "--report", path("r"), worker(), "heal",
                 "0", "1"})
                .code,
            0);
  EXPECT_EQ(report("r")["outcome"], "succeeded");
  EXPECT_EQ(report("r")["restarts"], 1);
  EXPECT_EQ(report("r")["attempt"], 1);
}

TEST_F(Reports, OfATimeLimit) {
  const Ended ended = run({"run", "-q", "--timeout", "1", "--report", path("r"), "sleep", "1000"});
  EXPECT_EQ(ended.code, 124);
  EXPECT_EQ(report("r")["outcome"], "failed");
  EXPECT_EQ(report("r")["code"], 124);
  EXPECT_EQ(report("r")["failure"], "the time limit of the job has passed");
}

TEST_F(Reports, OfASignal) {
  Running job({"run", "-q", "--report", path("r"), worker(), "pause"});
  job.await_out("ready");
  job.send(SIGINT);
  EXPECT_EQ(job.wait().code, 130);
  EXPECT_EQ(report("r")["code"], 130);
  EXPECT_THAT(report("r")["failure"].get<std::string>(), HasSubstr("was asked to stop by SIGINT"));
}

TEST_F(Reports, AreWholeOnEveryNode) {
  const Arguments program = {"sh", "-c", "[ $RANK = 1 ] && echo last words && exit 7; sleep 1000"};
  Running first(node(0, program), secret_), second(node(1, program), secret_);
  EXPECT_EQ(first.wait().code, 7);
  EXPECT_EQ(second.wait().code, 7);
  for (const char* name : {"r0", "r1"}) {
    const json told = report(name);
    EXPECT_EQ(told["outcome"], "failed") << name;
    EXPECT_EQ(told["code"], 7) << name;
    EXPECT_EQ(told["rank"], 1) << name;
    EXPECT_EQ(told["node"], 1) << name;
    EXPECT_EQ(told["exit_code"], 7) << name;
    EXPECT_EQ(told["last_lines"], json({"last words"})) << name;
    EXPECT_EQ(told["ranks"][0]["role"], "culprit") << name;
  }
}

TEST_F(Reports, OfANodeThatIsLost) {
  Running first(node(0, {worker(), "pause"}), secret_), second(node(1, {worker(), "pause"}), secret_);
  first.await_out("ready");
  second.await_out("ready");
  kill(second.agent(), SIGKILL);
  second.wait();
  EXPECT_EQ(first.wait().code, 4);
  EXPECT_EQ(report("r0")["code"], 4);
  EXPECT_THAT(report("r0")["failure"].get<std::string>(), HasSubstr("node 1 ("));
}

TEST_F(Reports, OfNodesThatDidNotMeet) {
  EXPECT_EQ(run(node(0, {"--connect-timeout", "1s", "--", "true"}), secret_).code, 4);
  EXPECT_EQ(report("r0")["code"], 4);
  EXPECT_THAT(report("r0")["failure"].get<std::string>(), HasSubstr("Timeout: "));
}

}  // namespace
}  // namespace tutti::testing
