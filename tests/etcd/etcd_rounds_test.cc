// Agents that meet in a real etcd.
#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>

#include "tests/etcd/etcd_server.h"
#include "tests/launch/running.h"
#include "tutti/transport/socket.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Arguments = std::vector<std::string>;

class EtcdRounds : public ::testing::Test {
 protected:
  Arguments node(const std::string& nnodes, const Arguments& rest) const {
    Arguments arguments = {"run",
                           "--nnodes",
                           nnodes,
                           "--rdzv-backend",
                           "etcd",
                           "--rdzv-endpoint",
                           etcd_.endpoint(),
                           "--rdzv-id",
                           "job",
                           "--rdzv-conf",
                           "last_call_timeout=1",
                           "--no-tune",
                           "--grace",
                           "1s",
                           "--restart-pause",
                           "1ms"};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return arguments;
  }
  static Arguments rank() {
    return {"sh", "-c", "echo \"world $WORLD_SIZE in $TUTTI_GENERATION at $MASTER_ADDR\"; exec sleep 600"};
  }

  EtcdServer etcd_ = EtcdServer::start().or_throw();
  const std::map<std::string, std::string> secret_ = {{"TUTTI_SECRET", "a word that all nodes know"}};
  const Folder folder_;
};

TEST_F(EtcdRounds, ARankFailsAndTheJobGoesOnFromItsSave) {
  const std::string file = folder_.path() + "/state";
  const std::string crash = "[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && exit 7; exec \"$0\" \"$@\"";
  const Arguments program = {"--max-restarts", "1", "sh", "-c", crash, TUTTI_TEST_RESUME, file, "50"};
  for (const char* again : {"", "a job of the same name, at once, is another one"}) {
    SCOPED_TRACE(again);
    std::filesystem::remove(file);
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

TEST_F(EtcdRounds, AnyNodeMayBeLostEvenTheCoordinator) {
  Running first(node("1:2", rank()), secret_);
  first.await_out("world 1 in 0 at 127.0.0.1");
  Running second(node("1:2", rank()), secret_);
  second.await_out("world 2 in 1 at 127.0.0.1");
  kill(first.agent(), SIGKILL);
  first.wait();
  second.await_out("world 1 in 2");
  Running third(node("1:2", rank()), secret_);
  third.await_out("world 2 in 3");
  second.send(SIGINT);
  EXPECT_EQ(second.wait().code, 130);
  EXPECT_EQ(third.wait().code, 130);
}

TEST_F(EtcdRounds, AnyNodeMayLeaveEvenTheCoordinator) {
  const std::string file = folder_.path() + "/state";
  const Arguments program = {TUTTI_TEST_RESUME, file, "1000000000"};
  Running first(node("1:2", program), secret_);
  first.await_out("on 1 ranks");
  Running second(node("1:2", program), secret_);
  first.await_out("on 2 ranks");
  std::filesystem::remove(file);  // the next save says that the ranks ask whether they should stop
  while (!std::filesystem::exists(file)) usleep(1000);
  first.send(SIGTERM);
  const Ended left = first.wait();
  EXPECT_EQ(left.code, 75) << left.err;
  second.await_err(") has left");
  second.await_out("on 1 ranks");
  std::filesystem::remove(file);
  while (!std::filesystem::exists(file)) usleep(1000);
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
  const std::string nobody = "127.0.0.1:" + std::to_string(listen({.host = "127.0.0.1"}).or_throw().address.port);
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
