// Friends, strangers and attackers at the door.
#include "tutti/transport/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tutti/transport/crypto.h"
#include "tutti/transport/socket.h"

namespace tutti::transport {
namespace {

using testing::HasSubstr;

Deadline soon_shaken() { return Deadline::after_seconds(60); }
Credentials ours() { return {.secret = Secret::from_text("open sesame"), .job = "job", .generation = 2}; }

struct HandshakePair {
  HandshakePair() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    client = Fd(fds[0]);
    server = Fd(fds[1]);
  }
  Fd client, server;
};

struct Outcome {
  Status client;
  Result<Hello> server = Error{};
};

Outcome meet(const Credentials& client, const Credentials& server, Hello hello = {.rank = 3, .channel = 42},
             Role role = Role::kStore) {
  HandshakePair pair;
  Outcome outcome;
  std::thread other([&] {
    outcome.server = handshake_as_server(pair.server.get(), server, role, soon_shaken());
    pair.server.reset();
  });
  outcome.client = handshake_as_client(pair.client.get(), client, hello, soon_shaken());
  pair.client.reset();
  other.join();
  return outcome;
}

std::string why(const Status& status) { return status.ok() ? "ok" : to_string(status.error()); }

// What a client says of a server that answers with `text` and closes.
std::string why_not(const std::string& text) {
  HandshakePair pair;
  EXPECT_EQ(::write(pair.server.get(), text.data(), text.size()), ssize_t(text.size()));
  ::shutdown(pair.server.get(), SHUT_WR);
  return why(handshake_as_client(pair.client.get(), ours(), {}, soon_shaken()));
}

std::string read_all(int fd) {
  std::string all;
  char bytes[512];
  for (ssize_t got; (got = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0;) all.append(bytes, std::size_t(got));
  return all;
}

void write_all(int fd, const std::string& bytes) {
  ASSERT_EQ(::write(fd, bytes.data(), bytes.size()), ssize_t(bytes.size()));
}

// A HELLO as our client would send it.
std::string record_hello(const Credentials& credentials = ours(), Hello hello = {}) {
  HandshakePair pair;
  (void)handshake_as_client(pair.client.get(), credentials, hello, Deadline::after_seconds(0)).ok();
  return read_all(pair.server.get());
}

TEST(Handshake, RanksOfTheJobPassAndTheServerLearnsTheirRanks) {
  const auto outcome = meet(ours(), ours());
  EXPECT_EQ(why(outcome.client), "ok");
  ASSERT_TRUE(outcome.server.ok());
  EXPECT_EQ(outcome.server->rank, 3);
  EXPECT_EQ(outcome.server->channel, 42u);
}

TEST(Handshake, WithoutSecretOnBothSidesItStillChecksTheJob) {
  Credentials open{.secret = Secret::none(), .job = "job"};
  EXPECT_EQ(why(meet(open, open).client), "ok");
  EXPECT_THAT(why(meet(open, {.secret = Secret::none(), .job = "other"}).client),
              HasSubstr("belongs to another job (ours is \"job\")"));
}

TEST(Handshake, EveryDifferenceHasItsSentenceOnBothSides) {
  Credentials other = ours();
  other.secret = Secret::from_text("guess");
  auto outcome = meet(other, ours());
  EXPECT_THAT(why(outcome.client),
              HasSubstr("holds another secret (ours has fingerprint " + other.secret.fingerprint() + ")"));
  EXPECT_THAT(
      why(outcome.server.status()),
      HasSubstr(
          "a client was refused: it holds another secret (hint: give all processes of the job the same TUTTI_SECRET or "
          "--secret-file)"));

  other = ours();
  other.job = "another";
  outcome = meet(other, ours());
  EXPECT_THAT(why(outcome.client), HasSubstr("belongs to another job (ours is \"another\")"));
  EXPECT_THAT(
      why(outcome.server.status()),
      HasSubstr(
          "it belongs to another job, ours is \"job\" (hint: give each job its own port; if it is one job, all its "
          "nodes need the same name)"));

  other = ours();
  other.generation = 1;
  outcome = meet(other, ours());
  EXPECT_THAT(why(outcome.client), HasSubstr("is at generation 2 of the job, this process belongs to generation 1"));
  EXPECT_THAT(why(outcome.server.status()), HasSubstr("it belongs to generation 1 of the job, ours is 2"));

  other = ours();
  other.secret = Secret::none();
  EXPECT_THAT(why(meet(other, ours()).client), HasSubstr("requires the job's secret"));
  EXPECT_THAT(why(meet(ours(), other).client),
              HasSubstr("runs without a secret (--insecure), and this process holds one"));
  EXPECT_THAT(why(meet(ours(), ours(), {.role = Role::kData}).client), HasSubstr("serves another purpose"));
}

TEST(Handshake, ServersOfOtherKindsAreDifferentErrors) {
  EXPECT_THAT(why_not("HTTP/1.1 400 Bad Request\r\nServer: nginx\r\n"),
              HasSubstr("does not speak tutti's protocol: it sent \"HTTP/1.1 400 Bad"));
  EXPECT_THAT(why_not("SSH-2.0-OpenSSH_9.2p1\r\n"), HasSubstr("it sent \"SSH-2.0-OpenSSH"));
  EXPECT_THAT(why_not("X"), HasSubstr("it sent \"X\""));
  EXPECT_THAT(why_not("\x01\x02"), HasSubstr("it sent \"..\""));
  EXPECT_THAT(why_not(""), HasSubstr("closed the connection during the handshake"));
  EXPECT_THAT(why_not(record_hello()), HasSubstr("sends back what it receives"));
}

TEST(Handshake, SilentServerIsATimeout) {
  HandshakePair pair;
  const auto status = handshake_as_client(pair.client.get(), ours(), {}, Deadline::after_seconds(0.02));
  EXPECT_THAT(why(status), HasSubstr("Timeout: the store at "));
  EXPECT_THAT(why(status), HasSubstr("accepted the connection but does not answer the handshake after"));
}

TEST(Handshake, StrangersAreTurnedAwayAtTheFirstWrongByteWithoutAnAnswer) {
  for (const std::string text : {"GET / HTTP/1.1\r\n\r\n", "T", "TUTTI2", "\x16\x03\x01"}) {
    HandshakePair pair;
    const Credentials credentials = ours();
    ServerHandshake handshake(credentials, Role::kStore);
    write_all(pair.client.get(), text);
    const auto finished = handshake.advance(pair.server.get());
    if (text == "T") {
      EXPECT_TRUE(finished.ok() && !*finished) << "one right byte is no reason yet";
      continue;
    }
    EXPECT_THAT(why(finished.status()), HasSubstr("a client that does not speak tutti's protocol sent \"")) << text;
    EXPECT_EQ(read_all(pair.client.get()), "");
  }
}

TEST(Handshake, ServerTakesBytesOneByOne) {
  HandshakePair pair;
  const Credentials credentials = ours();
  ServerHandshake handshake(credentials, Role::kStore);
  for (const char c : record_hello()) {
    write_all(pair.client.get(), {c});
    EXPECT_FALSE(handshake.advance(pair.server.get()).or_throw());
  }
  EXPECT_EQ(read_all(pair.client.get()).size(), 16u + 64u);
}

// The connection of a friend that was killed, or cut off.
TEST(Handshake, AClientThatLeavesIsNotSaidToHoldAnotherSecret) {
  HandshakePair pair;
  const Credentials credentials = ours();
  ServerHandshake handshake(credentials, Role::kStore);
  write_all(pair.client.get(), record_hello());
  EXPECT_FALSE(handshake.advance(pair.server.get()).or_throw());
  pair.client.reset();
  const auto left = handshake.advance(pair.server.get());
  ASSERT_FALSE(left.ok());
  EXPECT_EQ(left.error().code, Code::kPeerLost);
  EXPECT_EQ(left.error().detail, "the client disconnected before it could prove that it holds the secret");
}

TEST(Handshake, RecordedConversationOpensNothing) {
  // Record what a friend sends...
  HandshakePair front, back;
  std::string to_server, to_client;
  std::thread friend_client(
      [&] { EXPECT_EQ(why(handshake_as_client(front.client.get(), ours(), {}, soon_shaken())), "ok"); });
  Result<Hello> accepted = Error{};
  std::thread server([&] { accepted = handshake_as_server(back.server.get(), ours(), Role::kStore, soon_shaken()); });
  const auto relay = [](int from, int to, std::size_t size, std::string& record) {
    std::string bytes(size, '\0');
    recv_all(from, std::as_writable_bytes(std::span(bytes)), soon_shaken()).or_throw();
    write_all(to, bytes);
    record += bytes;
  };
  relay(front.server.get(), back.client.get(), 160, to_server);
  relay(back.client.get(), front.server.get(), 80, to_client);
  relay(front.server.get(), back.client.get(), 32, to_server);
  relay(back.client.get(), front.server.get(), 1, to_client);
  friend_client.join();
  server.join();
  ASSERT_TRUE(accepted.ok());

  // ... and play it again: to a server, which has a new nonce; and to a client, which has one too.
  HandshakePair replay;
  write_all(replay.client.get(), to_server);
  const auto again = handshake_as_server(replay.server.get(), ours(), Role::kStore, soon_shaken());
  EXPECT_THAT(why(again.status()), HasSubstr("it holds another secret"));
  EXPECT_THAT(why_not(to_client), HasSubstr("holds another secret"));
}

TEST(Handshake, ReflectedProofOpensNothing) {
  // The attacker knows no secret, but sends a server's own proof back to it as if it were the client's.
  HandshakePair pair;
  const Credentials credentials = ours();
  ServerHandshake handshake(credentials, Role::kStore);
  write_all(pair.client.get(), record_hello());
  EXPECT_FALSE(handshake.advance(pair.server.get()).or_throw());
  const std::string answer = read_all(pair.client.get());
  ASSERT_EQ(answer.size(), 80u);
  write_all(pair.client.get(), answer.substr(48));
  EXPECT_THAT(why(handshake.advance(pair.server.get()).status()), HasSubstr("it holds another secret"));
  EXPECT_EQ(read_all(pair.client.get()).size(), 1u);
}

TEST(Handshake, EveryBitOfHelloCounts) {
  const Credentials credentials = ours();
  const std::string hello = record_hello();
  for (std::size_t i = 0; i < hello.size(); ++i) {
    // The attacker changes one byte of a friend's HELLO on its way, and passes everything else on.
    HandshakePair front, back;
    Status client;
    std::thread friend_client([&] {
      client = handshake_as_client(front.client.get(), credentials, {}, soon_shaken());
      front.client.reset();
    });
    std::string bytes(160, '\0');
    recv_all(front.server.get(), std::as_writable_bytes(std::span(bytes)), soon_shaken()).or_throw();
    bytes[i] = char(bytes[i] ^ 1);
    write_all(back.client.get(), bytes);
    ServerHandshake handshake(credentials, Role::kStore);
    (void)handshake.advance(back.server.get()).ok();
    const std::string answer = read_all(back.client.get());
    if (!answer.empty()) write_all(front.server.get(), answer);
    front.server.reset();
    friend_client.join();
    EXPECT_FALSE(client.ok()) << "byte " << i;
  }
}

TEST(Secret, NeverShowsItself) {
  const Secret secret = Secret::from_text("hunter2");
  EXPECT_EQ(secret.fingerprint().size(), 8u);
  EXPECT_EQ(secret.fingerprint(), Secret::from_text("hunter2").fingerprint());
  EXPECT_NE(secret.fingerprint(), Secret::random().fingerprint());
  EXPECT_EQ(Secret::none().fingerprint(), "none");
  EXPECT_EQ(Secret::from_bytes(secret.bytes()).or_throw().fingerprint(), secret.fingerprint());
  EXPECT_FALSE(Secret::from_bytes(secret.bytes().first(31)).ok());
}

TEST(Secret, FileMustBePrivateAndNotEmpty) {
  const std::string path = testing::TempDir() + "tutti_secret_" + std::to_string(::getpid());
  const auto failure = [&] { return why(Secret::from_file(path).status()); };
  EXPECT_THAT(failure(), HasSubstr("No such file"));
  std::ofstream(path) << "open sesame \n";
  ::chmod(path.c_str(), 0640);
  EXPECT_THAT(failure(), HasSubstr("can be read or written by others (hint: chmod 600 " + path));
  ::chmod(path.c_str(), 0600);
  EXPECT_EQ(Secret::from_file(path).or_throw().fingerprint(), ours().secret.fingerprint());
  std::ofstream(path, std::ios::trunc) << " \n";
  EXPECT_THAT(failure(), HasSubstr("is empty"));
  ::unlink(path.c_str());
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  char two[3];
  for (const std::byte b : bytes) {
    std::snprintf(two, sizeof two, "%02x", std::to_integer<unsigned>(b));
    text += two;
  }
  return text;
}

TEST(Crypto, KnownAnswers) {
  EXPECT_EQ(hex(crypto::sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string key(20, '\x0b'), message = "Hi There";  // RFC 4231, case 1
  EXPECT_EQ(hex(crypto::hmac_sha256(std::as_bytes(std::span(key)), std::as_bytes(std::span(message)))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  const std::string secret(22, '\x0b'), salt("\0\1\2\3\4\5\6\7\10\11\12\13\14", 13),
      info("\xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9");  // RFC 5869, case 1
  EXPECT_EQ(hex(crypto::hkdf_sha256(std::as_bytes(std::span(secret)), std::as_bytes(std::span(salt)), info)),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
  EXPECT_FALSE(crypto::equal(crypto::sha256("a"), crypto::sha256("b")));
}

}  // namespace
}  // namespace tutti::transport
