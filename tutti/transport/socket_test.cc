#include "tutti/transport/socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tutti/transport/address.h"

namespace tutti::transport {
namespace {

using testing::HasSubstr;

const Address kAnyPort{.host = "127.0.0.1"};
Deadline soon() { return Deadline::after_seconds(60); }
Deadline at_once() { return Deadline::after_seconds(0.02); }
std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string socket_path(const char* name) {
  return testing::TempDir() + "tutti_" + name + "_" + std::to_string(::getpid());
}

Fd accept_soon(const Listener& listener) {
  EXPECT_TRUE(wait_readable(listener.fd.get(), soon()).or_throw());
  return accept(listener).or_throw();
}

struct Connected {
  Listener listener = listen(kAnyPort).or_throw();
  Fd client = connect(listener.address, soon()).or_throw();
  Fd server = accept_soon(listener);
};

TEST(Socket, ListenChoosesAPortAndConnectFindsIt) {
  const Connected pair;
  EXPECT_NE(pair.listener.address.port, 0);
  EXPECT_EQ(peer_address(pair.client.get()), pair.listener.address);
  EXPECT_EQ(peer_address(pair.server.get()), local_address(pair.client.get()));
  for (const int fd : {pair.listener.fd.get(), pair.client.get(), pair.server.get()}) {
    EXPECT_TRUE(fcntl(fd, F_GETFL) & O_NONBLOCK);
    EXPECT_TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC);
  }
  for (const int fd : {pair.client.get(), pair.server.get()}) {
    int on = 0;
    socklen_t size = sizeof on;
    ASSERT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &size), 0);
    EXPECT_TRUE(on);
  }
}

TEST(Socket, AcceptWithoutAConnectionIsNoError) {
  const auto listener = listen(kAnyPort).or_throw();
  EXPECT_FALSE(bool(accept(listener).or_throw()));
}

TEST(Socket, PortInUseNamesTheHolder) {
  const auto first = listen(kAnyPort).or_throw();
  const auto second = listen(first.address);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kAddressInUse);
  EXPECT_THAT(to_string(second.error()), HasSubstr("cannot listen at " + to_string(first.address) +
                                                   ": it is held by pid " + std::to_string(::getpid()) + " ("));
}

TEST(Socket, AddressOfAnotherMachineListsOurs) {
  const auto listener = listen({.host = "192.0.2.1"});
  ASSERT_FALSE(listener.ok());
  EXPECT_THAT(to_string(listener.error()), HasSubstr("this is not an address of this machine"));
  EXPECT_THAT(to_string(listener.error()), HasSubstr("127.0.0.1"));
  EXPECT_THAT(to_string(listen({.host = "a-name", .port = 1}).error()),
              HasSubstr("a listener needs a numeric address"));
}

TEST(Socket, AnErrorWithoutAListenerHasAddressTimeAndHint) {
  Address address;
  { address = listen(kAnyPort).or_throw().address; }
  const auto fd = connect(address, soon());
  ASSERT_FALSE(fd.ok());
  EXPECT_EQ(fd.error().code, Code::kUnreachable);
  EXPECT_THAT(to_string(fd.error()), HasSubstr("cannot connect to " + to_string(address) + " after "));
  EXPECT_THAT(to_string(fd.error()),
              HasSubstr("Connection refused (hint: the machine answers, but no program listens at this port"));
}

TEST(Socket, RetryEndsAtTheDeadlineWithBothTimes) {
  const Address address{.path = socket_path("never")};
  const auto fd = connect(address, Deadline::after_seconds(0.05), /*retry=*/true);
  ASSERT_FALSE(fd.ok());
  EXPECT_GE(fd.error().waited, 0.05);
  EXPECT_DOUBLE_EQ(fd.error().limit, 0.05);
  EXPECT_THAT(
      to_string(fd.error()),
      HasSubstr("of 50 ms: No such file or directory (hint: the program that should listen there has not started)"));
}

TEST(Socket, RetryWaitsForTheListener) {
  const Address address{.path = socket_path("late")};
  Result<Listener> listener = Error{};
  std::thread late([&] { listener = listen(address); });
  const auto fd = connect(address, soon(), /*retry=*/true);
  late.join();
  EXPECT_TRUE(fd.ok());
  ::unlink(address.path.c_str());
}

TEST(Socket, UnixSocketIsPrivateAndAnAbandonedOneIsReplaced) {
  const Address address{.path = socket_path("private")};
  {
    const auto listener = listen(address).or_throw();
    struct stat info;
    ASSERT_EQ(::stat(address.path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    const auto second = listen(address);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, Code::kAddressInUse);
  }
  const auto listener = listen(address);  // the file is still there, as after kill -9
  EXPECT_TRUE(listener.ok());
  ::unlink(address.path.c_str());
}

TEST(Socket, AbstractSocketIsInNoFolder) {
  const Address address = new_abstract_address();
  EXPECT_NE(address, new_abstract_address());
  {
    const auto listener = listen(address).or_throw();
    const Fd client = connect(address, soon()).or_throw(), server = accept_soon(listener);
    EXPECT_EQ(local_address(server.get()), address);
    EXPECT_EQ(peer_address(client.get()), address);
    EXPECT_FALSE(std::filesystem::exists(address.path)) << "not in this folder either";
    EXPECT_EQ(listen(address).status().error().code, Code::kAddressInUse);
  }
  EXPECT_EQ(connect(address, at_once(), false).status().error().code, Code::kUnreachable) << "nothing is left of it";
  EXPECT_TRUE(listen(address).ok());
}

// Anybody may take a name that is in no folder.
TEST(Socket, AbstractSocketOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const Address address = new_abstract_address();
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t stranger = ::fork();
  if (stranger == 0) {
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(1);
    const auto listener = listen(address);
    (void)!::write(told[1], "!", 1);
    ::pause();
  }
  char byte = 0;
  EXPECT_EQ(::read(told[0], &byte, 1), 1);
  const auto socket = connect(address, soon());
  ::kill(stranger, SIGKILL);
  ::waitpid(stranger, nullptr, 0);
  for (const int fd : told) ::close(fd);
  ASSERT_FALSE(socket.ok());
  EXPECT_EQ(socket.error().code, Code::kRefused);
  EXPECT_THAT(to_string(socket.error()), HasSubstr("of user id 65534 listens at unix:@tutti-"));
}

TEST(Socket, FileThatIsNoSocketIsNotReplaced) {
  const Address address{.path = socket_path("file")};
  std::ofstream(address.path) << "precious";
  EXPECT_FALSE(listen(address).ok());
  EXPECT_EQ(::access(address.path.c_str(), F_OK), 0);
  ::unlink(address.path.c_str());
}

TEST(Socket, PathThatIsTooLongIsASentence) {
  const Address address{.path = "/tmp/" + std::string(120, 'x')};
  EXPECT_THAT(to_string(listen(address).error()),
              HasSubstr("the path of a Unix socket has 125 bytes, the system allows 107"));
  EXPECT_THAT(to_string(connect(address, soon()).error()), HasSubstr("the path of a Unix socket has 125 bytes"));
}

TEST(Socket, ManyBytesArriveInOrder) {
  const Connected pair;
  std::string sent(5 << 20, '\0');
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = char(i * 31 + i / 977);
  std::thread sender([&] { send_all(pair.client.get(), bytes_of(sent), soon()).or_throw(); });
  std::string got(sent.size(), '\0');
  recv_all(pair.server.get(), std::as_writable_bytes(std::span(got)), soon()).or_throw();
  sender.join();
  EXPECT_TRUE(got == sent);
}

TEST(Socket, ClosedConnectionIsPeerLostWithItsAddress) {
  Connected pair;
  pair.server.reset();
  std::byte byte;
  const auto status = recv_all(pair.client.get(), {&byte, 1}, soon());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kPeerLost);
  EXPECT_THAT(to_string(status.error()), HasSubstr("the other side closed the connection"));
}

TEST(Socket, SilentPeerAndFullPeerAreTimeouts) {
  const Connected pair;
  std::byte byte;
  const auto silent = recv_all(pair.client.get(), {&byte, 1}, at_once());
  ASSERT_FALSE(silent.ok());
  EXPECT_THAT(to_string(silent.error()), HasSubstr("Timeout: the other side is silent: 1 bytes are awaited at " +
                                                   to_string(pair.listener.address)));
  const std::string much(64 << 20, 'x');
  const auto full = send_all(pair.client.get(), bytes_of(much), at_once());
  ASSERT_FALSE(full.ok());
  EXPECT_THAT(to_string(full.error()), HasSubstr("Timeout: the other side does not read: "));
}

TEST(Socket, DescriptorsAreSentOverUnixSockets) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  const Fd left(pair[0]), right(pair[1]);
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const Fd read_end(pipe_ends[0]), write_end(pipe_ends[1]);
  send_fds(left.get(), {pipe_ends, 2}, bytes_of("two ends"), soon()).or_throw();
  const auto received = recv_fds(right.get(), 2, 8, soon()).or_throw();
  ASSERT_EQ(received.fds.size(), 2u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(received.bytes.data()), received.bytes.size()), "two ends");
  EXPECT_TRUE(fcntl(received.fds[1].get(), F_GETFD) & FD_CLOEXEC);
  ASSERT_EQ(::write(received.fds[1].get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(read_end.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
}

TEST(Socket, MoreDescriptorsThanAllowedIsALimit) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  const Fd left(pair[0]), right(pair[1]);
  const int three[] = {0, 1, 2};
  send_fds(left.get(), three, bytes_of("x"), soon()).or_throw();
  const auto received = recv_fds(right.get(), 1, 1, soon());
  ASSERT_FALSE(received.ok());
  EXPECT_EQ(received.error().code, Code::kLimit);
}

}  // namespace
}  // namespace tutti::transport
