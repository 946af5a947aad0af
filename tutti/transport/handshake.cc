// Challenge and response. Each side contributes a *nonce*, so an old recording proves nothing; each proof covers the
// whole *transcript*, so nobody can change a field on the way; each proof carries its *label*, so a proof cannot be
// sent back to its author. The server proves itself first: a client tells its HELLO to anybody, but nothing else. The
// price: who knows the job's name gets one proof from the server, against which he may try guesses at the secret at
// home. 32 random bytes stand that; a word does not. A client whose secret is another sends zeros in place of its
// proof: so the server can tell it from one that was ended, or cut off, in the middle.
//
// A *verdict* is what a server says to a HELLO that it will not serve. Verdicts are not authenticated (there is nothing
// yet to authenticate them with): they choose the words of an error and decide nothing else.
#include "tutti/transport/handshake.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "tutti/base/text.h"
#include "tutti/transport/crypto.h"
#include "tutti/transport/socket.h"

namespace tutti::transport {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

// With the line feed an HTTP server answers at once instead of waiting for the rest of a header.
constexpr char kHelloMagic[] = "TUTTI1\r\n", kReplyMagic[] = "tutti1\r\n";
constexpr std::size_t kMagicSize = 8;
constexpr std::uint16_t kVersion = 1;
constexpr std::uint8_t kInsecureFlag = 1;
constexpr crypto::Digest kNoProof{};  // where a proof would tell a false server something
constexpr const char* kSecretHint = "give all processes of the job the same TUTTI_SECRET or --secret-file";

enum class HandshakeVerdict : std::uint8_t {
  kGoOn,
  kOtherVersion,
  kOtherJob,
  kOtherRole,
  kOtherGeneration,
  kOneInsecure,
  kOtherSecret
};

struct HelloMessage {
  char magic[8];
  std::uint16_t version;
  std::uint8_t role;
  std::uint8_t flags;
  std::uint32_t generation;
  std::int32_t rank;
  std::uint32_t zero;
  std::uint64_t channel;
  crypto::Digest job;
  crypto::Digest nonce;
  std::byte reserved[64];
};
static_assert(sizeof(HelloMessage) == 160);

struct ReplyMessage {
  char magic[8];
  HandshakeVerdict verdict;
  std::uint8_t role;
  std::uint16_t version;
  std::uint32_t generation;
};
static_assert(sizeof(ReplyMessage) == 16);

struct ChallengeMessage {
  crypto::Digest nonce;
  crypto::Digest proof;
};

template <class T>
std::span<const std::byte> bytes_of(const T& message) {
  return std::as_bytes(std::span(&message, 1));
}

struct Proofs {
  crypto::Digest server, client;
};

Proofs prove(const Credentials& credentials, const HelloMessage& hello, const ReplyMessage& reply,
             const crypto::Digest& server_nonce) {
  const std::string info = "tutti store/data key v1, role " + std::to_string(hello.role) + ", generation " +
                           std::to_string(hello.generation);
  const crypto::Digest key = crypto::hkdf_sha256(credentials.secret.bytes(), hello.job, info);
  struct {
    HelloMessage hello;
    ReplyMessage reply;
    crypto::Digest nonce;
    char label[8];
  } transcript{hello, reply, server_nonce, "S"};
  Proofs proofs;
  proofs.server = crypto::hmac_sha256(key, bytes_of(transcript));
  transcript.label[0] = 'C';
  proofs.client = crypto::hmac_sha256(key, bytes_of(transcript));
  return proofs;
}

const char* server_name(Role role) {
  switch (role) {
    case Role::kStore:
      return "the store";
    case Role::kLocal:
      return "the local rank";
    case Role::kData:
      return "the rank";
  }
  return "the server";
}

// A stranger's bytes, fit for a line of text.
std::string quote(std::span<const std::byte> bytes) {
  std::string text = "\"";
  for (const std::byte b : bytes.first(std::min<std::size_t>(bytes.size(), 40))) {
    const auto c = static_cast<unsigned char>(b);
    if (c == '\r' || c == '\n') break;
    text += std::isprint(c) ? char(c) : '.';
  }
  return text + "\"";
}

Error refused(std::string detail, std::string hint) {
  return Error{.code = Code::kRefused, .detail = std::move(detail), .hint = std::move(hint)};
}

// ---- client ----

Error verdict_error(const std::string& server, const ReplyMessage& reply, HandshakeVerdict verdict,
                    const Credentials& credentials) {
  switch (verdict) {
    case HandshakeVerdict::kOtherVersion:
      return refused(server + " speaks version " + std::to_string(reply.version) +
                         " of the protocol, this program version " + std::to_string(kVersion),
                     "build all programs of the job with the same release of tutti");
    case HandshakeVerdict::kOtherJob:
      return refused(server + " belongs to another job (ours is \"" + credentials.job + "\")",
                     "give each job its own port, or end the other job");
    case HandshakeVerdict::kOtherRole:
      return refused(server + " serves another purpose at this address", "check the address and the port");
    case HandshakeVerdict::kOtherGeneration:
      return refused(server + " is at generation " + std::to_string(reply.generation) +
                         " of the job, this process belongs to generation " + std::to_string(credentials.generation),
                     "this process is left over from before a restart, or started too early: start it again");
    case HandshakeVerdict::kOneInsecure:
      return credentials.secret.is_none()
                 ? refused(server + " requires the job's secret, and this process was started without one",
                           "give it through TUTTI_SECRET or --secret-file instead of --insecure")
                 : refused(server + " runs without a secret (--insecure), and this process holds one (fingerprint " +
                               credentials.secret.fingerprint() + ")",
                           "start all processes of the job in the same way");
    case HandshakeVerdict::kGoOn:
    case HandshakeVerdict::kOtherSecret:
      break;
  }
  return refused(server + " holds another secret (ours has fingerprint " + credentials.secret.fingerprint() + ")",
                 "give all processes of the job the same TUTTI_SECRET or --secret-file; if another job owns that port, "
                 "choose another port");
}

// Reads the REPLY, and looks at each byte as it comes: a stranger need not send sixteen.
Result<ReplyMessage> read_reply(int fd, const std::string& server, Deadline deadline) {
  std::array<std::byte, sizeof(ReplyMessage)> bytes;
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::recv(fd, bytes.data() + have, bytes.size() - have, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      if (!TUTTI_TRY(wait_readable(fd, deadline)))
        return deadline.error(server + " accepted the connection but does not answer the handshake",
                              "another program may hold that port, or the process there is stopped or very busy");
      continue;
    }
    if (got <= 0)
      return Error{.code = Code::kPeerLost,
                   .detail = server + " closed the connection during the handshake",
                   .hint = "another program may hold that port, or the process there has just ended: look at its log"};
    have += std::size_t(got);
    const std::size_t known = std::min(have, kMagicSize);
    if (std::memcmp(bytes.data(), kReplyMagic, known) == 0) continue;
    if (std::memcmp(bytes.data(), kHelloMagic, known) == 0)
      return refused(server + " sends back what it receives: it is an echo service or a client, not a tutti server",
                     "check the port");
    return refused(server + " does not speak tutti's protocol: it sent " + quote(std::span(bytes).first(have)),
                   "another program holds that port: choose another one");
  }
  return std::bit_cast<ReplyMessage>(bytes);
}

}  // namespace

Status handshake_as_client(int fd, const Credentials& credentials, const Hello& hello, Deadline deadline) {
  const std::string server = std::string(server_name(hello.role)) + " at " + to_string(peer_address(fd));
  HelloMessage message{};
  std::memcpy(message.magic, kHelloMagic, kMagicSize);
  message.version = kVersion;
  message.role = std::uint8_t(hello.role);
  message.flags = credentials.secret.is_none() ? kInsecureFlag : 0;
  message.generation = credentials.generation;
  message.rank = hello.rank;
  message.channel = hello.channel;
  message.job = crypto::sha256(credentials.job);
  crypto::fill_random(message.nonce);
  // A stranger may have closed already, with its banner still to be read: that tells more than "broken pipe".
  if (const Status sent = send_all(fd, bytes_of(message), deadline); !sent.ok() && sent.error().code != Code::kPeerLost)
    return sent;

  const ReplyMessage reply = TUTTI_TRY(read_reply(fd, server, deadline));
  if (reply.verdict != HandshakeVerdict::kGoOn) return verdict_error(server, reply, reply.verdict, credentials);
  ChallengeMessage challenge;
  TUTTI_TRY(recv_all(fd, std::as_writable_bytes(std::span(&challenge, 1)), deadline));
  const Proofs proofs = prove(credentials, message, reply, challenge.nonce);
  if (!crypto::equal(proofs.server, challenge.proof)) {
    (void)send_all(fd, kNoProof, deadline);
    return verdict_error(server, reply, HandshakeVerdict::kOtherSecret, credentials);
  }
  TUTTI_TRY(send_all(fd, proofs.client, deadline));
  HandshakeVerdict last{};
  TUTTI_TRY(recv_all(fd, std::as_writable_bytes(std::span(&last, 1)), deadline));
  if (last != HandshakeVerdict::kGoOn) return verdict_error(server, reply, last, credentials);
  return {};
}

// ---- server ----

namespace {

// A fresh connection has room for these few bytes; if not, the peer is not worth a wait.
Status send_now(int fd, std::span<const std::byte> bytes) {
  if (::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == ssize_t(bytes.size())) return {};
  return Error{.code = Code::kPeerLost, .detail = "the client disconnected during the handshake"};
}

}  // namespace

ServerHandshake::ServerHandshake(const Credentials& credentials, Role role) : credentials_(credentials), role_(role) {}

Result<bool> ServerHandshake::advance(int fd) {
  if (stage_ == Stage::kHello) {
    if (!TUTTI_TRY(fill(fd, sizeof(HelloMessage)))) return false;
    TUTTI_TRY(answer_hello(fd));
    stage_ = Stage::kProof;
    have_ = 0;
  }
  if (stage_ == Stage::kProof) {
    if (!TUTTI_TRY(fill(fd, expected_proof_.size()))) return false;
    TUTTI_TRY(check_proof(fd));
    stage_ = Stage::kDone;
  }
  return true;
}

Result<bool> ServerHandshake::fill(int fd, std::size_t size) {
  while (have_ < size) {
    const ssize_t got = ::recv(fd, bytes_.data() + have_, size - have_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0 && stage_ == Stage::kHello && have_ == 0)  // a probe whether the port is open
      return Error{.code = Code::kPeerLost, .detail = "the client sent nothing"};
    if (got <= 0 && stage_ == Stage::kProof)  // who holds another secret says so: this one was ended, or cut off
      return Error{.code = Code::kPeerLost,
                   .detail = "the client disconnected before it could prove that it holds the secret"};
    if (got <= 0) return refused("the client disconnected in the middle of its first message", "");
    have_ += std::size_t(got);
    if (stage_ == Stage::kHello && std::memcmp(bytes_.data(), kHelloMagic, std::min(have_, kMagicSize)) != 0)
      return refused("a client that does not speak tutti's protocol sent " + quote(std::span(bytes_).first(have_)), "");
  }
  return true;
}

Status ServerHandshake::answer_hello(int fd) {
  const auto message = std::bit_cast<HelloMessage>(bytes_);
  ReplyMessage reply{.verdict = HandshakeVerdict::kGoOn,
                     .role = std::uint8_t(role_),
                     .version = kVersion,
                     .generation = credentials_.generation};
  std::memcpy(reply.magic, kReplyMagic, kMagicSize);
  const auto refuse = [&](HandshakeVerdict verdict, std::string why, std::string hint = {}) -> Status {
    reply.verdict = verdict;
    TUTTI_TRY(send_now(fd, bytes_of(reply)));
    return refused("a client was refused: " + std::move(why), std::move(hint));
  };
  if (message.version != kVersion)
    return refuse(HandshakeVerdict::kOtherVersion,
                  "it speaks version " + std::to_string(message.version) + " of the protocol",
                  "build all programs of the job with the same release of tutti");
  if (!crypto::equal(message.job, crypto::sha256(credentials_.job)))
    return refuse(HandshakeVerdict::kOtherJob, "it belongs to another job, ours is \"" + credentials_.job + "\"",
                  "give each job its own port; if it is one job, all its nodes need the same name");
  if (message.role != std::uint8_t(role_))
    return refuse(HandshakeVerdict::kOtherRole, "it asked for a connection of another kind");
  if (message.generation != credentials_.generation)
    return refuse(HandshakeVerdict::kOtherGeneration, "it belongs to generation " + std::to_string(message.generation) +
                                                          " of the job, ours is " +
                                                          std::to_string(credentials_.generation));
  if (((message.flags & kInsecureFlag) != 0) != credentials_.secret.is_none())
    return refuse(
        HandshakeVerdict::kOneInsecure,
        credentials_.secret.is_none() ? "it holds a secret, and this process runs without one" : "it holds no secret",
        "start all processes of the job in the same way");

  struct {
    ReplyMessage reply;
    ChallengeMessage challenge;
  } answer{reply, {}};
  crypto::fill_random(answer.challenge.nonce);
  const Proofs proofs = prove(credentials_, message, reply, answer.challenge.nonce);
  answer.challenge.proof = proofs.server;
  expected_proof_ = proofs.client;
  hello_ = Hello{.role = role_, .rank = message.rank, .channel = message.channel};
  return send_now(fd, bytes_of(answer));
}

Status ServerHandshake::check_proof(int fd) {
  const bool proven = crypto::equal(std::span(bytes_).first(expected_proof_.size()), expected_proof_);
  const HandshakeVerdict verdict = proven ? HandshakeVerdict::kGoOn : HandshakeVerdict::kOtherSecret;
  const Status told = send_now(fd, bytes_of(verdict));
  if (!proven) return refused("a client was refused: it holds another secret", kSecretHint);
  return told;
}

Result<Hello> handshake_as_server(int fd, const Credentials& credentials, Role role, Deadline deadline) {
  ServerHandshake handshake(credentials, role);
  while (!TUTTI_TRY(handshake.advance(fd)))
    if (!TUTTI_TRY(wait_readable(fd, deadline))) return deadline.error("a client did not finish the handshake");
  return handshake.hello();
}

}  // namespace tutti::transport
