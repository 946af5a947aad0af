// Agents that meet in a real etcd.
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "tests/etcd/etcd_server.h"
#include "tests/launch/several_nodes.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class EtcdRounds : public SeveralNodes {
 protected:
  Arguments node(const std::string& nnodes, const Arguments& rest) const {
    return with({"run", "--nnodes", nnodes, "--rdzv-backend", "etcd", "--rdzv-endpoint", etcd_.endpoint(), "--rdzv-id",
                 "job", "--rdzv-conf", "last_call_timeout=1", "--no-tune", "--grace", "1s", "--restart-pause", "1ms"},
                rest);
  }

  const EtcdServer etcd_ = EtcdServer::start().or_throw();
};

// One node of one, with more of --rdzv-conf, which says its user's name and that no rank sees a password.
Ended alone(const std::string& endpoint, const std::string& conf, const std::string& password = {}) {
  return run({"run", "--nnodes", "1", "--rdzv-backend", "etcd", "--rdzv-endpoint", endpoint, "--rdzv-id", "job",
              "--rdzv-conf", "join_timeout=60," + conf, "sh", "-c", "echo \"password [$TUTTI_ETCD_PASSWORD]\""},
             {{"TUTTI_SECRET", "a word"}, {"TUTTI_ETCD_PASSWORD", password}});
}

TEST_F(EtcdRounds, WithAUserAndAPassword) {
  etcd_.demand_passwords().or_throw();
  const Ended good = alone(etcd_.endpoint(), "user=tutti", "of tutti");
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_THAT(good.out, HasSubstr("password []"));
  const auto refused = [&](const std::string& conf, const std::string& password) {
    const Ended ended = alone(etcd_.endpoint(), conf, password);
    EXPECT_EQ(ended.code, 2);
    return ended.err;
  };
  EXPECT_THAT(refused("user=tutti", "of somebody"),
              AllOf(HasSubstr("etcd denies access: "), HasSubstr("invalid user ID or password"),
                    HasSubstr("give a user that may read and write the keys of the job, and the password")));
  EXPECT_THAT(refused("user=guest", "of guest"), HasSubstr("etcd denies access: etcdserver: permission denied"));
  EXPECT_THAT(refused("user=tutti", ""), AllOf(HasSubstr("--rdzv-conf user=tutti needs a password"),
                                               HasSubstr("set TUTTI_ETCD_PASSWORD on every node")));
  EXPECT_THAT(refused("last_call_timeout=1", ""), HasSubstr("etcd denies access: etcdserver: user name is empty"));
}

TEST_F(EtcdRounds, WithCertificates) {
  if (!Certificates::installed()) GTEST_SKIP() << "there is no openssl";
  const Certificates files;
  const auto etcd = EtcdServer::start({"--trusted-ca-file", files.file("ca.pem")}, &files).or_throw();
  const std::string endpoint = "https://" + etcd.endpoint(), authority = "cacert=" + files.file("ca.pem"),
                    client = ",ssl_cert=" + files.file("client.pem") + ",ssl_cert_key=" + files.file("client.key");
  const Ended good = alone(endpoint, authority + client);
  EXPECT_EQ(good.code, 0) << good.err;
  const auto refused = [&](const std::string& conf) {
    const Ended ended = alone(endpoint, conf);
    EXPECT_NE(ended.code, 0);
    return ended.err;
  };
  EXPECT_THAT(
      refused("cacert=" + files.file("stranger.pem") + client),
      AllOf(HasSubstr("no connection to etcd at " + endpoint + ": SSL certificate problem"), HasSubstr("(cacert)")));
  EXPECT_THAT(refused(authority), HasSubstr("this etcd requires a certificate that it trusts"));
  EXPECT_THAT(
      refused("cacert=" + files.file("none.pem")),
      AllOf(HasSubstr("--rdzv-conf cacert=" + files.file("none.pem") + " cannot be read"), HasSubstr("No such file")));
}

TEST_F(EtcdRounds, AfterAFailedRankTheJobResumesFromItsCheckpoint) {
  const std::string crash = "[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && exit 7; exec \"$0\" \"$@\"";
  const Arguments program = with({"--max-restarts", "1", "sh", "-c", crash}, resuming("50"));
  for (const char* again : {"", "a job of the same name, at once, is another one"}) {
    SCOPED_TRACE(again);
    std::filesystem::remove_all(state_folder());
    Running first(node("2", program), secret_), second(node("2", program), secret_);
    const Ended one = first.wait(), two = second.wait();
    EXPECT_EQ(one.code, 0) << one.err;
    EXPECT_EQ(two.code, 0) << two.err;
    EXPECT_THAT(one.out + two.out, HasSubstr("sum after 50 steps"));
    for (const Ended* ended : {&one, &two})
      EXPECT_THAT(ended->err, AllOf(HasSubstr("attempt 0 failed: rank 1 (pid "), HasSubstr("exited with code 7"),
                                    HasSubstr("restart 1 of 1")));
  }
}

// The ranks have a store of their own, at node 0; only an agent knows of the signal.
TEST_F(EtcdRounds, RanksOfOtherNodesSayWhatHappened) {
  for (const char* culprit : {"0", "1"}) {
    const Arguments program = {TUTTI_TEST_WORLD, "die", culprit};
    auto variables = secret_;
    variables["TUTTI_TRANSPORT"] = "tcp";
    Running first(node("2", program), variables), second(node("2", program), variables);
    const Ended one = first.wait(), two = second.wait();
    EXPECT_EQ(one.code, 137) << one.err;
    const std::string mourner = *culprit == '0' ? "[1] " : "[0] ", all = one.err + two.err;
    const auto begin = all.find(mourner + "PeerLost: ");
    ASSERT_NE(begin, std::string::npos) << all;
    EXPECT_THAT(all.substr(begin, all.find('\n', begin) - begin),
                AllOf(HasSubstr("rank " + std::string(culprit) + " (pid "), HasSubstr("was killed by SIGKILL")));
  }
}

TEST_F(EtcdRounds, AnyNodeMayBeLostEvenTheCoordinator) {
  Running first(node("1:2", rank()), secret_);
  first.await_out("world 1 in 0, restart 0, at 127.0.0.1");
  Running second(node("1:2", rank()), secret_);
  second.await_out("world 2 in 1, restart 0, at 127.0.0.1");
  kill(first.agent(), SIGKILL);
  first.wait();
  second.await_out("world 1 in 2");
  Running third(node("1:2", rank()), secret_);
  third.await_out("world 2 in 3"), second.await_out("world 2 in 3");  // a signal that comes earlier ends one alone
  second.send(SIGINT);
  EXPECT_EQ(second.wait().code, 130);
  EXPECT_EQ(third.wait().code, 130);
}

// etcd lets both in; only heartbeats depend on the secret, and look as if a firewall kept them.
TEST_F(EtcdRounds, ANodeWithAnotherSecretGetsAnErrorThatNamesTheSecret) {
  Running first(node("2", rank()), secret_);
  first.await_err("1 of 2 nodes joined");
  const Ended other = run(node("2", rank()), {{"TUTTI_SECRET", "a word that nobody else on earth will ever know"}});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err,
              AllOf(HasSubstr("the coordinator, "),
                    HasSubstr(", has another secret than this node, or none (ours has fingerprint "),
                    HasSubstr("give all nodes the same TUTTI_SECRET or --secret-file"), Not(HasSubstr("firewall"))));
  const Ended open = run(with(node("2", {"--insecure"}), rank()));
  EXPECT_EQ(open.code, 2);
  EXPECT_THAT(open.err, HasSubstr(", holds a secret, and this node was started without one (--insecure)"));
  first.send(SIGINT);
  EXPECT_EQ(first.wait().code, 130);
}

TEST_F(EtcdRounds, AnyNodeMayLeaveEvenTheCoordinator) {
  const Arguments program = resuming("1000000000");
  Running first(node("1:2", program), secret_);
  first.await_out("on 1 ranks");
  Running second(node("1:2", program), secret_);
  first.await_out("on 2 ranks");
  await_next_save();  // it says that the ranks ask whether they should stop
  first.send(SIGTERM);
  const Ended left = first.wait();
  EXPECT_EQ(left.code, 75) << left.err;
  second.await_err(") has left");
  second.await_out("on 1 ranks");
  await_next_save();
  second.send(SIGTERM);
  EXPECT_EQ(second.wait().code, 75);
}

TEST_F(EtcdRounds, AJobWhoseAgentsAllDiedStartsAgainUnderItsName) {
  {
    Running first(node("2", rank()), secret_), second(node("2", rank()), secret_);
    first.await_out("world 2 in 0"), second.await_out("world 2 in 0");
    kill(first.agent(), SIGKILL), kill(second.agent(), SIGKILL);
    first.wait(), second.wait();
  }
  Running first(node("2", rank()), secret_), second(node("2", rank()), secret_);
  first.await_out("world 2 in 1"), second.await_out("world 2 in 1");
  first.send(SIGINT);
  EXPECT_EQ(first.wait().code, 130);
  EXPECT_EQ(second.wait().code, 130);
}

TEST_F(EtcdRounds, WithoutEtcdTheEndIsASentence) {
  const test::ReservedPort port;
  const std::string nobody = port.address();
  const Ended ended = run({"run", "--nnodes", "2", "--rdzv-backend", "etcd", "--rdzv-endpoint", nobody, "--rdzv-id",
                           "job", "--rdzv-conf", "join_timeout=6", "true"},
                          secret_);
  EXPECT_EQ(ended.code, 4);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("waiting for etcd at " + nobody + " for 5"),
                               HasSubstr("etcd at http://" + nobody + " cannot be reached ("), HasSubstr(" of 6 s"),
                               HasSubstr("is etcd started, is that its address (--rdzv-endpoint)")));
}

}  // namespace
}  // namespace tutti::testing

int main(int argc, char** argv) {
  if (!tutti::EtcdServer::installed()) {
    std::puts("skipped: there is no etcd (Debian: apt-get install etcd-server)");
    return 77;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
