// A host is lost with its ranks and their memory, and the job continues from what its neighbour kept.
#include "tests/hosts/on_hosts.h"

namespace tutti::testing {
namespace {

using ::testing::HasSubstr;

class LostMemory : public OnHosts {
 protected:
  LostMemory() : OnHosts(3) {}
  // The first two wish for the place of their number: rank 0, whose lines are waited for, is on host 0 whoever comes
  // first.
  Running train(int host, const std::string& nnodes, const std::string& ranks, const Arguments& words) {
    Arguments line = {"run",
                      "--nnodes",
                      nnodes,
                      "-n",
                      ranks,
                      "--max-restarts",
                      "3",
                      "--rdzv-backend",
                      "elastic",
                      "--rdzv-endpoint",
                      "node-a:29400",
                      "--rdzv-conf",
                      "last_call_timeout=1,join_timeout=60",
                      "--grace",
                      "1s",
                      "--no-tune",
                      TUTTI_TEST_TRAINING,
                      "steps=60",
                      "copies=5"};
    line.insert(line.end(), words.begin(), words.end());
    if (host < 2) line.insert(line.begin() + 1, {"--node-rank", std::to_string(host)});
    return start(host, line);
  }
  static std::string digest_of(const std::string& out) {
    const auto at = out.rfind("ended with ");
    return at == std::string::npos ? "none" : out.substr(at);
  }
};

// No folder at all: the ranks of node-b are restored on a node that has never seen them.
TEST_F(LostMemory, OfANodeIsRestoredOnASpare) {
  std::string undisturbed;
  {
    Running a = train(0, "2", "2", {}), b = train(1, "2", "2", {});
    undisturbed = digest_of(a.wait().out + b.wait().out);
    ASSERT_NE(undisturbed, "none");
  }
  Running a = train(0, "2", "2", {"pause=50"}), b = train(1, "2", "2", {"pause=50"});
  a.await_out("step 1 of 4");
  Running spare = train(2, "2", "2", {"pause=50"});
  a.await_err("waits as a spare");
  a.await_out("step 22 of 4");
  must(hosts().power_off(1));
  const Ended here = a.wait(), there = spare.wait();
  EXPECT_EQ(here.code, 0) << here.err << there.err;
  EXPECT_THAT(here.err + there.err, HasSubstr("from the copy in memory of step "));
  EXPECT_EQ(digest_of(here.out + there.out), undisturbed);
  EXPECT_THAT(here.out + there.out, ::testing::Not(HasSubstr("began after 0")));
}

// With fewer ranks than before: close, and not from the start.
TEST_F(LostMemory, IsReshardedToTheRanksThatAreLeft) {
  Running a = train(0, "1:2", "2", {"pause=50"}), b = train(1, "1:2", "1", {"pause=50"});
  a.await_out("step 12 of 3");
  must(hosts().power_off(1));
  const Ended here = a.wait();
  EXPECT_EQ(here.code, 0) << here.err;
  EXPECT_THAT(here.err, HasSubstr("from the copy in memory of step "));
  EXPECT_THAT(here.out, HasSubstr("step 60 of 2"));
}

// Each host has a folder of its own: together they are the checkpoint.
class OwnFolders : public OnHosts {
 protected:
  OwnFolders() : OnHosts(2) {}
  Running train(int host, const Arguments& words) {
    Arguments line = {TUTTI_TEST_TRAINING, "steps=40", "interval=10", "per_node=1",
                      "folder=" + hosts().folder(host) + "/run"};
    line.insert(line.end(), words.begin(), words.end());
    return start(host, node(host, 2, "2", line));
  }
};

TEST_F(OwnFolders, AJobResumesFromThemAndNamesTheLostOne) {
  {
    Running a = train(0, {"die=25:3"}), b = train(1, {"die=25:3"});
    EXPECT_NE(a.wait().code, 0);
    b.wait();
  }
  std::string resumed;
  {
    Running a = train(0, {}), b = train(1, {});
    const Ended here = a.wait(), there = b.wait();
    ASSERT_EQ(here.code, 0) << here.err << there.err;
    EXPECT_THAT(here.err, HasSubstr("resuming after step "));
    resumed = line_with(here.out, "ended with ");
  }
  for (const int host : {0, 1}) must(hosts().shell(host, "rm -rf " + hosts().folder(host) + "/run").status());
  {
    Running a = train(0, {}), b = train(1, {});
    const Ended here = a.wait(), there = b.wait();
    const std::string undisturbed = line_with(here.out, "ended with ");
    ASSERT_NE(undisturbed.find("ended with "), std::string::npos) << here.err << there.err;
    EXPECT_EQ(resumed.substr(resumed.find("ended")), undisturbed.substr(undisturbed.find("ended")));
  }
  must(hosts().shell(1, "rm -rf " + hosts().folder(1) + "/run").status());
  Running a = train(0, {}), b = train(1, {});
  const Ended here = a.wait(), there = b.wait();
  EXPECT_NE(here.code, 0);
  EXPECT_THAT(here.err + there.err, HasSubstr("which was written on host node-b, is on none of the nodes"));
}

}  // namespace
}  // namespace tutti::testing
