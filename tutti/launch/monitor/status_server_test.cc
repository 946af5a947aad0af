#include "tutti/launch/monitor/status_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>

namespace tutti::launch {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// The sockets of a user without other jobs.
class StatusServers : public ::testing::Test {
 protected:
  StatusServers() {
    folder_ = ::testing::TempDir() + "tutti_status_XXXXXX";
    if (!mkdtemp(folder_.data())) std::abort();
    for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR"}) ::setenv(name, folder_.c_str(), 1);
  }
  ~StatusServers() override {
    for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR"}) ::unsetenv(name);
    std::filesystem::remove_all(folder_);
  }

  // The answer to a client that asks while the server's loop runs.
  static Result<std::string> ask(StatusServer& server, const std::string& path) {
    auto asking = std::async(std::launch::async, [&] { return ask_status(path, Deadline::after_seconds(30)); });
    while (asking.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      PollSet events;
      server.listen(events);
      events.wake_after(std::chrono::milliseconds(10));
      events.wait();
    }
    return asking.get();
  }

  std::string folder_;
};

TEST_F(StatusServers, AnswersAClient) {
  StatusServer server("a-job.of-mine", 3, [](Clock::time_point) { return std::string("fine"); });
  ASSERT_EQ(server.trouble(), "");
  const auto sockets = status_sockets();
  ASSERT_THAT(sockets, SizeIs(1));
  EXPECT_EQ(sockets[0].job_file, "a-job.of-mine");
  EXPECT_EQ(sockets[0].node, 3);
  EXPECT_EQ(sockets[0].agent, ::getpid());
  const auto answer = ask(server, sockets[0].path);
  ASSERT_TRUE(answer.ok()) << to_string(answer.error());
  EXPECT_EQ(*answer, "fine");
}

TEST_F(StatusServers, AsksAgainUntilThereIsAnAnswer) {
  int asked = 0;
  const std::string large(1 << 20, 'x');  // more than a socket takes at once
  StatusServer server("j", 0, [&](Clock::time_point) { return ++asked < 3 ? std::nullopt : std::optional(large); });
  EXPECT_EQ(*ask(server, status_sockets().at(0).path), large);
  EXPECT_EQ(asked, 3);
}

TEST_F(StatusServers, ItsSocketGoesWithIt) {
  std::string path;
  {
    StatusServer server("j", 0, [](Clock::time_point) { return std::string("fine"); });
    path = status_sockets().at(0).path;
  }
  EXPECT_THAT(status_sockets(), IsEmpty());
  EXPECT_FALSE(ask_status(path, Deadline::after_seconds(5)).ok());
}

TEST_F(StatusServers, OtherFilesAreIgnored) {
  std::filesystem::create_directory(folder_ + "/tutti");
  for (const char* name : {"agent-.sock", "agent-j.sock", "agent-j-x.7.sock", "agent-j-0.x.sock", "agent-j-0.-7.sock",
                           "agent-j-99999999999.7.sock", "agent-j-0.7.sock.old", "j-0.7.sock"})
    std::ofstream(folder_ + "/tutti/" + name) << "";
  std::filesystem::permissions(folder_ + "/tutti", std::filesystem::perms::owner_all);
  EXPECT_THAT(status_sockets(), IsEmpty());
}

// The client cannot be accepted and stays in the backlog: the agent must not poll the listener in a loop meanwhile.
TEST_F(StatusServers, WithoutADescriptorForAClientItDoesNotSpin) {
  StatusServer server("j", 0, [](Clock::time_point) { return std::string("fine"); });
  const auto asks = connect(transport::Address{.path = status_sockets().at(0).path}, Deadline::after_seconds(30));
  ASSERT_TRUE(asks.ok()) << to_string(asks.error());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int free = ::dup(STDERR_FILENO);
  ::close(free);
  const rlimit none{.rlim_cur = rlim_t(free), .rlim_max = before.rlim_max};
  const auto turn = [&](Duration limit) {
    PollSet events;
    server.listen(events);
    events.wake_after(limit);
    const auto began = now();
    events.wait();
    return now() - began;
  };
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  turn(std::chrono::seconds(30));  // it could not be let in
  const auto second = turn(std::chrono::milliseconds(50));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_GE(second, std::chrono::milliseconds(45));
  std::string answer(4, ' ');
  while (::recv(asks->get(), answer.data(), answer.size(), MSG_DONTWAIT) < 0) turn(std::chrono::seconds(1));
  EXPECT_EQ(answer, "fine");
}

// Listing the sockets creates nothing.
TEST_F(StatusServers, ListingMakesNoFolder) {
  (void)status_sockets();  // without a folder here it tries the next path
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

}  // namespace
}  // namespace tutti::launch
