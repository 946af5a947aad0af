// tutti doctor on several hosts, as somebody types it on each of them.
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "tests/hosts/on_hosts.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/version.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
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
  EXPECT_THAT(ended.out, AllOf(HasSubstr("3 of 3 nodes joined at 10.77.0.1:29501, for 6 ranks"),
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
                MatchesRegex("WARN .*/s back: [0-9]+ % of the median of all pairs .*ethtool.*"));
}

TEST_F(Doctor, ContinuesWithTheNodesThatJoined) {
  Running first = doctor(0, {"--timeout", "3s"}), second = doctor(1, {"--timeout", "3s"});
  const Ended ended = first.wait();
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(second.wait().out, ended.out);
  EXPECT_THAT(ended.err, HasSubstr("waiting for node 2 for "));
  EXPECT_THAT(
      ended.out,
      AllOf(HasSubstr("2 of 3 nodes joined at 10.77.0.1:29501 within 3 s; missing: node 2 (fix: start tutti doctor "
                      "there"),
            HasSubstr("node-a - node-b")));
}

TEST_F(Doctor, ThatCannotReachTheFirstHostSaysSo) {
  must(hosts().partition({0}));
  const Ended ended = doctor(1, {"--timeout", "3s"}).wait();
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("node-b, for 2 ranks"), HasSubstr("FAIL  rendezvous"),
                               HasSubstr("10.77.0.1:29501"), HasSubstr("firewall")));
  // All of the wait, and not the last slice of it: a slice is 2 s.
  EXPECT_THAT(line_with(ended.out, "FAIL  rendezvous"), ContainsRegex(" after [3-9][.0-9]* s of 3 s"));
}

TEST_F(Doctor, WithAnotherSecretIsRejectedWithTheReason) {
  Running first = doctor(0, {"--timeout", "4s"});
  const Ended refused = doctor(1, {}, {{"TUTTI_SECRET", "the wrong word, of more than twenty characters"}}).wait();
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.out, AllOf(HasSubstr("FAIL  rendezvous"), HasSubstr("holds another secret")));
  EXPECT_THAT(first.wait().out, HasSubstr("1 of 3 nodes joined"));
}

TEST_F(Doctor, TheTrapOf127011) {
  must(hosts().set_hosts_file(0, "127.0.0.1 localhost\n127.0.1.1 node-a\n"));
  const Ended ended =
      start(0, {"doctor", "--nnodes", "2", "--node-rank", "0", "--master-addr", "node-a", "--timeout", "1s"}).wait();
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("the line \"127.0.1.1 node-a (line 2 of /etc/hosts)\" hides the address of node-a"));
}

// What is measured is the way that the job will take.
TEST_F(Doctor, TheNetworkOfTheJobIsChosen) {
  const auto at = [&](int host) {
    return start(host, {"doctor", "--nnodes", "2", "--node-rank", std::to_string(host), "--iface", "10.77.0.0/24",
                        host == 0 ? "-n1" : "--master-addr=" + Hosts::address(0)});
  };
  Running second = at(1);
  const Ended ended = at(0).wait();
  EXPECT_EQ(second.wait().out, ended.out);
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("10.77.0.0/24 is 10.77.0.1 here"), HasSubstr("10.77.0.0/24 is 10.77.0.2 here"),
                               HasSubstr("2 of 2 nodes joined at 10.77.0.1:29501"), HasSubstr("node-a - node-b")));
}

// The address that the others are told is of that network, even where the store is reached by another way.
TEST_F(Doctor, ANetworkThatLeadsNowhereIsSeenByThePairs) {
  must(hosts()
           .shell(1,
                  "ip link add docker0 type bridge && ip address add 172.17.0.1/16 dev docker0 && "
                  "ip link set docker0 up")
           .status());
  Running third = doctor(2), second = doctor(1, {}, {{"TUTTI_IFACE", "docker0"}});
  const Ended ended = doctor(0).wait();
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("docker0 is 172.17.0.1 here"), HasSubstr("node-a cannot reach node-b: "),
                               Not(HasSubstr("node-a cannot reach node-c"))));
  second.wait(), third.wait();
}

// What stands for ssh enters the host's namespaces.
class DoctorOverSsh : public Doctor {
 protected:
  Ended over_ssh(const std::string& list, const Arguments& more = {}) {
    const std::string shell = shared().path() + "/ssh";
    std::string text = "#!/bin/sh\ncase $1 in\n";
    for (int host = 0; host < 3; ++host)
      text += Hosts::name(host) + ") in='" + join(hosts().entering(host), " ") + "';;\n";
    must(write_file(shell, text + "*) echo \"ssh: Could not resolve hostname $1\" >&2; exit 255;;\nesac\n"
                                  "exec $in sh -c \"$2\"\n"));
    EXPECT_EQ(::chmod(shell.c_str(), 0700), 0);
    Arguments arguments = {"doctor", "--hosts", list, "--ssh", shell, "--master-addr", Hosts::address(0)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
};

TEST_F(DoctorOverSsh, AHostThatIsNotThereIsALineAndTheOthersAreExamined) {
  const Ended ended = over_ssh("node-a:4,gone:8,node-c:1");
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("node-a, for 4 ranks\n"), HasSubstr("node-c, for 1 rank\n"),
                               HasSubstr("2 of 2 nodes joined at 10.77.0.1:"), HasSubstr("node-a - node-c"),
                               HasSubstr("FAIL  ssh "), HasSubstr(", 1 FAIL\n")));
  EXPECT_THAT(line_with(ended.out, "gone"),
              AllOf(HasSubstr("gone did not start tutti (exit code 255): ssh: Could not resolve hostname gone"),
                    HasSubstr("(fix: ssh must reach gone without a prompt: try ssh -o BatchMode=yes gone true")));
}

// The first host cannot say why the other did not come; that one can.
TEST_F(DoctorOverSsh, WhoCannotReachTheFirstHostIsCalledByItsNameAndHeard) {
  must(hosts().cut(2, 0));
  const Ended ended = over_ssh("node-a:1,node-b:1,node-c:1", {"--timeout", "3s"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("within 3 s; missing: node-c (fix: its own output shows more"),
                               HasSubstr("node-c, for 1 rank\n"), HasSubstr("node-a - node-b")));
}

TEST_F(DoctorOverSsh, AllOfThemInOneReport) {
  const Ended ended = over_ssh("node-a:4,node-b:2,node-c:1");
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("node-a, for 4 ranks\n"), HasSubstr("node-c, for 1 rank\n"),
                               HasSubstr("3 of 3 nodes joined at 10.77.0.1:"), HasSubstr("node-b - node-c")));
  EXPECT_EQ(ended.out.find("between the hosts"), ended.out.rfind("between the hosts"));  // one report
}

TEST_F(Doctor, OneHost) {
  must(hosts().shell(0, "mount -t tmpfs -o size=1m tmpfs /dev/shm").status());
  const Ended ended = start(0, {"doctor", "-n", "1", "--devices", "3", "--heap", "900T"}).wait();
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("1 MiB; Tutti does not use it"), HasSubstr("3 GPUs expected"),
                               HasSubstr("a heap of 900 TiB")));
}

TEST(DoctorUsage, IsReportedInASentence) {
  const auto told = [](const Arguments& arguments) {
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.code, 2) << ended.err;
    return ended.err;
  };
  EXPECT_THAT(told({"doctor", "--nnodes", "2"}), HasSubstr("2 hosts need --master-addr"));
  EXPECT_THAT(told({"doctor", "--node-rank", "1"}), HasSubstr("--node-rank 1 is not one of 1 host"));
  EXPECT_THAT(told({"doctor", "--nnodes", "2", "--master-addr", "127.0.0.1"}), HasSubstr("the hosts need a secret"));
  EXPECT_THAT(told({"doctor", "--heap", "much"}), HasSubstr("--heap needs a size such as 2G or 512M, not 'much'"));
  EXPECT_THAT(told({"doctor", "--hosts", "a:1", "--nnodes", "2"}), HasSubstr("drop --nnodes and --node-rank"));
  EXPECT_THAT(told({"doctor", "--ssh", "rsh"}), HasSubstr("--ssh is for hosts that are examined over ssh"));
  EXPECT_THAT(told({"doctor", "--nodes", "2"}), HasSubstr("did you mean"));
  EXPECT_THAT(told({"doctor", "--hosts", "a:1", "-n", "4"}), HasSubstr("and -n gives 4"));
  EXPECT_THAT(told({"doctor", "--hosts", "a", "--hostfile", "b"}), HasSubstr("--hosts and --hostfile are both given"));
  EXPECT_THAT(told({"doctor", "--hostfile", "/no/such"}), HasSubstr("/no/such"));
  EXPECT_THAT(told({"doctor", "--hosts", ""}), HasSubstr("an empty value (is a variable that it comes from not set?)"));
  EXPECT_THAT(told({"doctor", "--nnodes", "2", "--master-addr", "127.0.0.1", "--secret-file", "/no/such"}),
              HasSubstr("cannot read the secret file /no/such: No such file or directory"));
  EXPECT_THAT(told({"doctor", "--hosts", "localhost", "--secret-file", "/no/such"}),
              HasSubstr("cannot read the secret file /no/such: No such file or directory"));
  EXPECT_THAT(told({"doctor", "--hosts", "localhost", "--ssh", "/nope"}), HasSubstr("--ssh /nope: the program"));
}

TEST(DoctorUsage, ANetworkThatIsNotHereIsALine) {
  const Ended ended = run({"doctor", "--iface", "nope0"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(line_with(ended.out, "FAIL  network"),
              AllOf(HasSubstr("no interface \"nope0\" is up here"), HasSubstr("(fix: this machine has ")));
  EXPECT_THAT(line_with(run({"doctor", "--iface", "lo"}).out, "OK    network"), HasSubstr("lo is 127.0.0.1 here"));
}

// Hosts that are this one, or none: by a program that stands for ssh.
class DoctorOfAList : public ::testing::Test {
 protected:
  Ended doctor(const std::string& list, const std::string& shell_text, const Arguments& more = {},
               const std::map<std::string, std::string>& changes = {}) {
    const std::string shell = folder_.path() + "/rsh", hosts = folder_.path() + "/hosts";
    EXPECT_TRUE(write_file(shell, "#!/bin/sh\n" + shell_text + "\n").ok());
    EXPECT_EQ(::chmod(shell.c_str(), 0700), 0);
    EXPECT_TRUE(write_file(hosts, list).ok());
    Arguments arguments = {"doctor", "--hostfile", hosts, "--ssh", shell};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, changes);
  }

 private:
  Folder folder_;
};

TEST_F(DoctorOfAList, TheOneThatIsLeftIsExaminedAlone) {
  const Ended ended =
      doctor("gone slots=2\nhere slots=3\n", "[ $1 = here ] || { echo 'no route' >&2; exit 255; }; exec sh -c \"$2\"");
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr(", for 3 ranks\n"), HasSubstr("FAIL  ssh"),
                               HasSubstr("gone did not start tutti (exit code 255): no route (fix: ")));
}

TEST_F(DoctorOfAList, TheNetworkOfTheJobIsTheOneThere) {
  const std::string ssh = "exec env -u TUTTI_IFACE sh -c \"$2\"";  // which takes no variable along
  for (const Ended& ended :
       {doctor("here\n", ssh, {"--iface", "nope0"}), doctor("here\n", ssh, {}, {{"TUTTI_IFACE", "nope0"}})}) {
    EXPECT_EQ(ended.code, 1) << ended.err;
    EXPECT_THAT(line_with(ended.out, "FAIL  network"), HasSubstr("no interface \"nope0\" is up here"));
  }
}

TEST_F(DoctorOfAList, OneThatDoesNotAnswerIsWaitedForAsLongAsItMayTake) {
  const Ended ended = doctor("gone\nhere\n", "[ $1 = here ] || exec sleep 60; exec sh -c \"$2\"", {"--timeout", "1s"});
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_THAT(line_with(ended.out, "FAIL  ssh"), AllOf(ContainsRegex("no answer from gone after [0-9.]+ s of 1 s"),
                                                       HasSubstr("(fix: does `ssh gone true` return?)")));
  EXPECT_THAT(ended.out, HasSubstr(", for 1 rank\n"));
}

TEST_F(DoctorOfAList, AnotherReleaseIsALine) {
  const Ended ended = doctor(
      "old\nhere\n",
      R"([ $1 = here ] && exec sh -c "$2"; echo 'TUTTI-NODE {"version":"0.0.1","host":"old","address":"","from":"",)"
      R"("master_port":1,"store_port":2}'; exec sleep 60)");
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_THAT(line_with(ended.out, "FAIL  versions"),
              AllOf(HasSubstr("old has tutti 0.0.1, this host " TUTTI_VERSION), HasSubstr("install the same version")));
  EXPECT_THAT(ended.out, HasSubstr(", for 1 rank\n"));
}

TEST_F(DoctorOfAList, ReportsEachHostWhenNoneCanBeReached) {
  const std::string none = "echo 'no route' >&2; exit 255";
  const Ended ended = doctor("a\nb\n", none);
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("a did not start tutti"), HasSubstr("b did not start tutti"),
                               HasSubstr("0 OK, 0 WARN, 2 FAIL\n")));
  const auto json = nlohmann::json::parse(doctor("a\nb\n", none, {"--json"}).out, nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json["between"].size(), 2u);
  EXPECT_EQ(json["between"][0]["grade"], "FAIL");
}

TEST_F(DoctorOfAList, AHostThatIsLostMeanwhileDoesNotEndTheOthers) {
  // It greets, takes its instructions and is gone.
  const Ended ended =
      doctor("here\nlost\n",
             R"([ $1 = here ] && exec sh -c "$2"; echo 'TUTTI-NODE {"version":")" TUTTI_VERSION
             R"(","host":"lost","address":"","from":"","master_port":1,"store_port":2}'; read line; exit 255)",
             {"--timeout", "2s"});
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("the connection to lost is lost; the other hosts continue"));
  EXPECT_THAT(ended.out, HasSubstr("1 of 2 nodes joined at 127.0.0.1:"));
  EXPECT_THAT(ended.out, HasSubstr("missing: lost (fix: "));
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
