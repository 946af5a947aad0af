// Who may take part, asked of the connections between ranks themselves (of the store's: tests of store/ and
// rendezvous/): a wrong secret, another job, an earlier generation; strangers that connect, say nothing, or say
// something else; and a world that comes together all the same.
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "tests/faults/worlds.h"
#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"
#include "tutti/transport/shm/host.h"
#include "tutti/transport/socket.h"
#include "tutti/transport/tcp/tcp_transport.h"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

transport::Credentials credentials(const std::string& secret = "right", const std::string& job = "job",
                                   std::uint32_t generation = 2) {
  return {.secret = transport::Secret::from_text(secret), .job = job, .generation = generation};
}

struct Stranger {
  const char* name;
  transport::Credentials credentials;
  const char* words;  // of the refusal, on its side
};
std::vector<Stranger> strangers() {
  return {{"secret", credentials("wrong"), "Refused: "},
          {"job", credentials("right", "another job"), "belongs to another job (ours is \"another job\")"},
          {"generation", credentials("right", "job", 1),
           "is at generation 2 of the job, this process belongs to generation 1"}};
}

class LocalSocket : public ::testing::TestWithParam<Stranger> {};

// Rank 1 holds other credentials than rank 0: it is refused by name, and rank 0 says at its limit who is missing.
TEST_P(LocalSocket, RefusesAStranger) {
  const Folder folder;
  ::setenv("XDG_RUNTIME_DIR", folder.path().c_str(), 1);
  auto first = transport::Host::open(credentials(), 0).or_throw(),
       second = transport::Host::open(GetParam().credentials, 1).or_throw();
  const std::vector<std::string> contacts = {first->contact(), second->contact()};
  Status first_status, second_status;
  std::thread other([&] { second_status = second->join(contacts, {0, 1}, 1, 1 << 24, Deadline::after_seconds(60)); });
  first_status = first->join(contacts, {0, 1}, 0, 1 << 24, Deadline::after_seconds(1.5));
  other.join();
  ASSERT_FALSE(second_status.ok());
  EXPECT_EQ(second_status.error().code, Code::kRefused);
  EXPECT_THAT(to_string(second_status.error()), HasSubstr("cannot join local rank 0 (global rank 0): "));
  EXPECT_THAT(to_string(second_status.error()), HasSubstr(GetParam().words));
  ASSERT_FALSE(first_status.ok());
  EXPECT_THAT(to_string(first_status.error()), HasSubstr("Timeout: "));
  EXPECT_THAT(to_string(first_status.error()), HasSubstr("rank 1 on this host did not connect for shared memory"));
  ::unsetenv("XDG_RUNTIME_DIR");
}

INSTANTIATE_TEST_SUITE_P(Other, LocalSocket, ::testing::ValuesIn(strangers()),
                         [](const auto& info) { return std::string(info.param.name); });

class DataLink : public ::testing::TestWithParam<Stranger> {};

TEST_P(DataLink, RefusesAStranger) {
  auto first = transport::TcpTransport::open("127.0.0.1", credentials(), 0).or_throw(),
       second = transport::TcpTransport::open("127.0.0.1", GetParam().credentials, 1).or_throw();
  const std::vector<std::string> contacts = {first->contact(), second->contact()};
  const int ranks[] = {0, 1};
  Status first_status, second_status;
  std::thread other(
      [&] { second_status = second->connect(contacts, ranks, 1, 7, Deadline::after_seconds(60)).status(); });
  first_status = first->connect(contacts, ranks, 0, 7, Deadline::after_seconds(1.5)).status();
  other.join();
  ASSERT_FALSE(second_status.ok());
  EXPECT_EQ(second_status.error().code, Code::kRefused);
  EXPECT_THAT(to_string(second_status.error()), HasSubstr("connecting to rank 0"));
  EXPECT_THAT(to_string(second_status.error()), HasSubstr(GetParam().words));
  ASSERT_FALSE(first_status.ok());
  EXPECT_THAT(to_string(first_status.error()), HasSubstr("rank 1 did not connect to 127.0.0.1:"));
}

INSTANTIATE_TEST_SUITE_P(Other, DataLink, ::testing::ValuesIn(strangers()),
                         [](const auto& info) { return std::string(info.param.name); });

std::string random_bytes(std::size_t size) {
  static std::mt19937 random(1);
  std::string bytes(size, ' ');
  for (char& byte : bytes) byte = char(random());
  return bytes;
}

// Connections that say nothing, too little, random bytes, or something else. They stay open until the object goes.
class Crowd {
 public:
  explicit Crowd(const transport::Address& address) {
    for (int i = 0; i < 12; ++i) {
      Fd fd = connect(address, Deadline::after_seconds(60)).or_throw();
      const std::string words = i % 4 == 0   ? ""
                                : i % 4 == 1 ? "TUTTI1\r\n"
                                : i % 4 == 2 ? "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
                                             : random_bytes(500);
      if (!words.empty()) (void)::send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL);
      all_.push_back(std::move(fd));
    }
  }

 private:
  std::vector<Fd> all_;
};

// More of them than files that the process may have open, and they say nothing.
TEST(Strangers, ThatTakeAllFilesGiveWay) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  auto first = transport::TcpTransport::open("127.0.0.1", credentials(), 0).or_throw();
  const transport::Address address = transport::parse_address(first->contact()).or_throw();
  constexpr int kIdle = 70;
  const pid_t crowd = ::fork();
  if (crowd == 0) {
    std::vector<Fd> idle;
    for (int i = 0; i < kIdle; ++i) {
      Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in to{
          .sin_family = AF_INET, .sin_port = htons(address.port), .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
      if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) ::_exit(1);
      idle.push_back(std::move(fd));
    }
    (void)::kill(::getpid(), SIGSTOP);  // all are there
    ::pause();
  }
  int status = 0;
  ASSERT_EQ(::waitpid(crowd, &status, WUNTRACED), crowd);
  ASSERT_TRUE(WIFSTOPPED(status));
  auto second = transport::TcpTransport::open("127.0.0.1", credentials(), 1).or_throw();
  const rlimit few{.rlim_cur = 64, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const std::vector<std::string> contacts = {first->contact(), second->contact()};
  const int ranks[] = {0, 1};
  Status of_second;
  std::thread other([&] { of_second = second->connect(contacts, ranks, 1, 7, Deadline::after_seconds(60)).status(); });
  const Status of_first = first->connect(contacts, ranks, 0, 7, Deadline::after_seconds(60)).status();
  other.join();
  (void)::setrlimit(RLIMIT_NOFILE, &before);
  (void)::kill(crowd, SIGKILL);
  (void)::waitpid(crowd, &status, 0);
  EXPECT_TRUE(of_first.ok()) << to_string(of_first.error());
  EXPECT_TRUE(of_second.ok()) << to_string(of_second.error());
}

TEST(Strangers, DoNotKeepRanksFromMeetingOverTcp) {
  auto first = transport::TcpTransport::open("127.0.0.1", credentials(), 0).or_throw(),
       second = transport::TcpTransport::open("127.0.0.1", credentials(), 1).or_throw();
  const std::vector<std::string> contacts = {first->contact(), second->contact()};
  const Crowd crowd(transport::parse_address(contacts[0]).or_throw());
  const int ranks[] = {0, 1};
  Status status;
  std::thread other([&] { status = second->connect(contacts, ranks, 1, 7, Deadline::after_seconds(60)).status(); });
  EXPECT_TRUE(first->connect(contacts, ranks, 0, 7, Deadline::after_seconds(60)).ok());
  other.join();
  EXPECT_TRUE(status.ok());
}

// The limit is shorter than what one silent connection after another would take.
TEST(Strangers, DoNotKeepRanksFromMeetingOnOneHost) {
  const Folder folder;
  ::setenv("XDG_RUNTIME_DIR", folder.path().c_str(), 1);
  auto first = transport::Host::open(credentials(), 0).or_throw(),
       second = transport::Host::open(credentials(), 1).or_throw();
  const std::vector<std::string> contacts = {first->contact(), second->contact()};
  const Crowd crowd(transport::Address{.path = contacts[0]});
  Status status;
  std::thread other([&] { status = second->join(contacts, {0, 1}, 1, 1 << 24, Deadline::after_seconds(15)); });
  const Status first_status = first->join(contacts, {0, 1}, 0, 1 << 24, Deadline::after_seconds(15));
  other.join();
  EXPECT_TRUE(first_status.ok()) << to_string(first_status.error());
  EXPECT_TRUE(status.ok()) << to_string(status.error());
  ::unsetenv("XDG_RUNTIME_DIR");
}

}  // namespace
}  // namespace tutti::test
