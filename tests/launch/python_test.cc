// What the report of a failed job takes from Python programs, which say nothing to the launcher: their tracebacks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/launch/running.h"
#include "tests/launch/write_script.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Python : public ::testing::Test {
 protected:
  std::string script(const std::string& text) const {
    write_script(path("train.py"), text);
    return path("train.py");
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  nlohmann::json report() const { return nlohmann::json::parse(read_file(path("report")), nullptr, false); }
  Ended run_ranks(const std::string& ranks, const std::string& text, const std::string& words = {}) const {
    return run({"run", "-q", "-n", ranks, "--grace", "60s", "--report", path("report"), "python3", script(text),
                folder_.path(), words});
  }

 private:
  const Folder folder_;
};

// Its traceback is longer than the last lines that the report shows.
constexpr const char* kDeep = R"(
import sys, time
def load(depth, sample):
    if depth == 0:
        raise KeyError(sample)
    load_the_rest(depth - 1, sample)
def load_the_rest(depth, sample):
    load(depth, sample)
print("loading", flush=True)
try:
    load(20, 640)
except KeyError as error:
    raise ValueError("the loss is NaN\nin step 3") from error
)";

TEST_F(Python, TheTracebackIsTheMessage) {
  const Ended ended = run_ranks("1", kDeep);
  EXPECT_EQ(ended.code, 1);
  const std::string shown = ended.err.substr(std::min(ended.err.find("[tutti] the job failed"), ended.err.size()));
  EXPECT_THAT(shown, AllOf(HasSubstr("\n[tutti]   its message: ValueError: the loss is NaN\n"
                                     "[tutti]     Traceback (most recent call last):\n"),
                           HasSubstr(", in load_the_rest\n"), HasSubstr("\n[tutti]     KeyError: 640\n"),
                           HasSubstr("\n[tutti]     ValueError: the loss is NaN\n[tutti]     in step 3\n"),
                           Not(HasSubstr("\n[0] "))))
      << "and shows its lines once";
  const std::string message = report().value("message", "");
  EXPECT_THAT(message, AllOf(StartsWith("ValueError: the loss is NaN\nTraceback (most recent call last):\n"),
                             HasSubstr("\nKeyError: 640\n"), HasSubstr(", in load_the_rest\n")));
}

TEST_F(Python, ATracebackThatTheProgramSurvivedIsNoReasonOfASignal) {
  const Ended ended = run_ranks("1", R"(
import os, signal, traceback
try:
    raise ValueError("try again")
except ValueError:
    traceback.print_exc()
os.kill(os.getpid(), signal.SIGKILL)
)");
  EXPECT_EQ(ended.code, 137);
  EXPECT_THAT(ended.err, Not(HasSubstr("its message")));
  EXPECT_FALSE(report().contains("message"));
}

// Rank 0 raises argv[2] when rank 1 is gone, even if the launcher has asked it to leave by then.
constexpr const char* kPeerFails = R"(
import os, select, signal, sys
class DistBackendError(RuntimeError):
    pass
DistBackendError.__module__ = "torch.distributed"
folder, words = sys.argv[1:]
if os.environ["RANK"] == "1":
    open(folder + "/pid", "w").write(str(os.getpid()))
    open(folder + "/proceed").read()
    raise ValueError("the loss is NaN")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
peer = os.pidfd_open(int(open(folder + "/pid").read()))
open(folder + "/proceed", "w").close()
select.select([peer], [], [])
raise DistBackendError(words)
)";

TEST_F(Python, ARankThatOnlyNoticedTheEndOfAnotherIsNotBlamed) {
  for (const char* pipe : {"pid", "proceed"}) ASSERT_EQ(mkfifo(path(pipe).c_str(), 0600), 0);
  const auto role_of_rank_0 = [&](const std::string& words) {
    const Ended ended = run_ranks("2", kPeerFails, words);
    EXPECT_THAT(ended.err,
                AllOf(HasSubstr("the job failed: rank 1 "), HasSubstr("its message: ValueError: the loss is NaN\n"),
                      HasSubstr("[0] torch.distributed.DistBackendError: " + words + "\n")));
    return report()["ranks"][0].value("role", "");
  };
  EXPECT_EQ(role_of_rank_0("tutti: PeerLost: all_reduce #3 on group world, rank 0: rank 1 (pid 7 on a) has died"),
            "also_ended");
  EXPECT_EQ(role_of_rank_0("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
                           "[10.0.0.1]:47113"),
            "also_ended");
}

}  // namespace
}  // namespace tutti::testing
