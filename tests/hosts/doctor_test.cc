// tutti doctor on several hosts, as somebody types it on each of them.
#include <sys/stat.h>

#include "tests/hosts/on_hosts.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class Doctor : public OnHosts {
 protected:
  explicit Doctor(int count = 3) : OnHosts(count) {}

  Running doctor(int host, const Arguments& more = {}, const std::map<std::string, std::string>& changes = {}) {
    Arguments arguments = {"doctor",
                           "--nnodes",
                           std::to_string(hosts().count()),
                           "--node-rank",
                           std::to_string(host),
                           "--master-addr",
                           Hosts::address(0),
                           "-n",
                           "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return start(host, arguments, changes);
  }
  // What the first host says when all have come.
  Ended all() {
    std::vector<std::unique_ptr<Running>> others;
    for (int host = 1; host < hosts().count(); ++host) others.emplace_back(new Running(doctor(host)));
    const Ended told = doctor(0).wait();
    for (const auto& other : others) EXPECT_EQ(other->wait().out, told.out);  // the same to everybody
    return told;
  }
};

TEST_F(Doctor, TriesEveryPair) {
  const Ended ended = all();
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  for (const char* host : {"node-a", "node-b", "node-c"})
    EXPECT_THAT(ended.out, HasSubstr(std::string(host) + ", for 2 ranks\n"));
  EXPECT_THAT(ended.out, AllOf(HasSubstr("3 of 3 nodes came to 10.77.0.1:29501, for 6 ranks"),
                               HasSubstr("10.77.0.1:29501 is free (the store)"), HasSubstr(", 0 FAIL\n")));
  for (const char* pair : {"node-a - node-b", "node-a - node-c", "node-b - node-c"})
    EXPECT_THAT(line_with(ended.out, pair),
                MatchesRegex("(OK|WARN) +" + std::string(pair) + " +.* one way, .*/s there, .*/s back.*"));
}

TEST_F(Doctor, NamesThePairThatIsCut) {
  must(hosts().cut(1, 2));
  const Ended ended = all();
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("node-b cannot reach node-c: "), HasSubstr("node-c cannot reach node-b: "),
                               HasSubstr("(fix: let the hosts of a job talk on all ports to one another"),
                               Not(HasSubstr("node-a cannot reach")), HasSubstr(", 2 FAIL\n")));
}

TEST_F(Doctor, NamesTheHostWithoutUdp) {
  must(hosts().block_datagrams(1));
  const Ended ended = all();
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("node-a - node-b  TCP passes, but no UDP datagram came back"),
                               HasSubstr("node-b - node-c  TCP passes, but no UDP datagram came back"),
                               Not(HasSubstr("node-a - node-c  TCP passes"))));
}

// With three hosts two of three pairs are slow, and nobody can say that one host is the odd one.
class DoctorOfFour : public Doctor {
 protected:
  DoctorOfFour() : Doctor(4) {}
};

TEST_F(DoctorOfFour, NamesTheSlowPairs) {
  must(hosts().slow(3, 50'000'000));
  const Ended ended = all();
  EXPECT_EQ(ended.code, 0) << ended.out;
  for (const char* pair : {"node-a - node-d", "node-b - node-d", "node-c - node-d"})
    EXPECT_THAT(line_with(ended.out, pair),
                MatchesRegex("WARN .*/s back: [0-9]+ % of what the median pair has .*ethtool.*"));
}

TEST_F(Doctor, GoesOnWithThoseWhoCame) {
  Running first = doctor(0, {"--timeout", "3s"}), second = doctor(1, {"--timeout", "3s"});
  const Ended ended = first.wait();
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(second.wait().out, ended.out);
  EXPECT_THAT(ended.err, HasSubstr("waiting for node 2 for "));
  EXPECT_THAT(
      ended.out,
      AllOf(HasSubstr("2 of 3 nodes came to 10.77.0.1:29501 within 3 s; missing: node 2 (fix: start tutti doctor "
                      "there"),
            HasSubstr("node-a - node-b")));
}

TEST_F(Doctor, ThatCannotReachTheFirstHostSaysSo) {
  must(hosts().partition({0}));
  const Ended ended = doctor(1, {"--timeout", "1s"}).wait();
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("node-b, for 2 ranks"), HasSubstr("FAIL  meeting"),
                               HasSubstr("10.77.0.1:29501"), HasSubstr("firewall")));
}

TEST_F(Doctor, WithAnotherSecretIsToldSo) {
  Running first = doctor(0, {"--timeout", "4s"});
  const Ended refused = doctor(1, {}, {{"TUTTI_SECRET", "the wrong word, of more than twenty characters"}}).wait();
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.out, AllOf(HasSubstr("FAIL  meeting"), HasSubstr("holds another secret")));
  EXPECT_THAT(first.wait().out, HasSubstr("1 of 3 nodes came"));
}

TEST_F(Doctor, TheTrapOf127011) {
  must(hosts().set_hosts_file(0, "127.0.0.1 localhost\n127.0.1.1 node-a\n"));
  const Ended ended = start(0, {"doctor", "--nnodes", "2", "--node-rank", "0", "--master-addr", "node-a"}).wait();
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("change the line \"127.0.1.1 node-a (line 2 of /etc/hosts)\""));
}

// What stands for ssh enters the host's namespaces.
TEST_F(Doctor, OverSsh) {
  const std::string shell = shared().path() + "/ssh";
  std::string text = "#!/bin/sh\ncase $1 in\n";
  for (int host = 0; host < 3; ++host)
    text += Hosts::name(host) + ") in='" + join(hosts().entering(host), " ") + "';;\n";
  ASSERT_TRUE(write_file(shell, text + "esac\nexec $in sh -c \"$2\"\n").ok());
  ASSERT_EQ(::chmod(shell.c_str(), 0700), 0);
  const Ended ended =
      run({"doctor", "--hosts", "node-a:4,node-b:2,node-c:1", "--ssh", shell, "--master-addr", Hosts::address(0)});
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("node-a, for 4 ranks\n"), HasSubstr("node-c, for 1 rank\n"),
                               HasSubstr("3 of 3 nodes came to 10.77.0.1:"), HasSubstr("node-b - node-c")));
  EXPECT_EQ(ended.out.find("between the hosts"), ended.out.rfind("between the hosts"));  // one report
}

TEST_F(Doctor, OneHost) {
  must(hosts().shell(0, "mount -t tmpfs -o size=1m tmpfs /dev/shm").status());
  const Ended ended = start(0, {"doctor", "-n", "1", "--devices", "3", "--heap", "900T"}).wait();
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("1 MiB; Tutti does not use it"), HasSubstr("3 GPUs expected"),
                               HasSubstr("a heap of 900 TiB")));
}

TEST(DoctorUsage, IsToldInASentence) {
  const auto told = [](const Arguments& arguments) {
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.code, 2) << ended.err;
    return ended.err;
  };
  EXPECT_THAT(told({"doctor", "--nnodes", "2"}), HasSubstr("2 hosts need --master-addr"));
  EXPECT_THAT(told({"doctor", "--node-rank", "1"}), HasSubstr("--node-rank 1 is not one of 1 host"));
  EXPECT_THAT(told({"doctor", "--nnodes", "2", "--master-addr", "127.0.0.1"}), HasSubstr("the hosts need a secret"));
  EXPECT_THAT(told({"doctor", "--heap", "much"}), HasSubstr("--heap needs a size such as 2G or 512M, not 'much'"));
  EXPECT_THAT(told({"doctor", "--hosts", "a:1", "--nnodes", "2"}), HasSubstr("leave --nnodes and --node-rank out"));
  EXPECT_THAT(told({"doctor", "--ssh", "rsh"}), HasSubstr("--ssh is for hosts that are examined over ssh"));
  EXPECT_THAT(told({"doctor", "--nodes", "2"}), HasSubstr("did you mean"));
}

TEST(Env, SaysWhatAReportOfABugNeedsAndNoSecret) {
  const Ended ended = run({"env"}, {{"TUTTI_SECRET", "sesame-sesame-sesame"}, {"NCCL_DEBUG", "INFO"}});
  EXPECT_EQ(ended.code, 0);
  for (const char* part : {"tutti ", "kernel ", "CPU ", "cores ", "memory ", "open files ", "addresses ", "OpenSSL ",
                           "NCCL_DEBUG", "TUTTI_SECRET"})
    EXPECT_THAT(ended.out, HasSubstr(part));
  EXPECT_THAT(ended.out, Not(HasSubstr("sesame")));
  EXPECT_THAT(run({"env", "--json"}).out, HasSubstr("\"name\": \"kernel\""));
}

}  // namespace
}  // namespace tutti::testing
