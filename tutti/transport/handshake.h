#pragma once
// Authentication. Both sides of every connection of a job prove that they hold the job's secret, before a byte of
// anything else is read: a challenge and response with HMAC-SHA256 both ways, bound to job id, role, rank and
// generation.
//
//   HELLO      client -> server, 160 bytes  magic, version, role, generation, rank, channel, SHA-256 of the job id,
//                                           nonce
//   REPLY      server -> client, 16 bytes   magic, verdict, and the server's role, version and generation
//   CHALLENGE  server -> client, 64 bytes   nonce, HMAC(key, "S" | transcript); only after the verdict "go on"
//   PROOF      client -> server, 32 bytes   HMAC(key, "C" | transcript); answered by one byte, the last verdict
//
// The key is HKDF-SHA256(secret, salt: job, info: role and generation), so a key for the store opens no data connection
// and an earlier generation opens nothing. The transcript is HELLO, REPLY and both nonces; the labels S and C stop
// reflection. Fixed sizes, at most 256 bytes read and nothing allocated before the proof; proofs are compared in
// constant time. The other end's job, version, generation and secret, and strangers that speak another protocol, are
// distinguished in the errors.
#include <array>
#include <cstdint>
#include <string>

#include "tutti/base/deadline.h"
#include "tutti/transport/secret.h"

namespace tutti::transport {

enum class Role : std::uint8_t { kStore = 1, kLocal = 2, kData = 3 };

// What both ends must agree on.
struct Credentials {
  Secret secret;
  std::string job;               // id of the job
  std::uint32_t generation = 0;  // of the world: a rank of an earlier one is refused
};

// The client's description of itself; the server gets it verified.
struct Hello {
  Role role = Role::kStore;
  std::int32_t rank = -1;     // global rank, -1 if none yet
  std::uint64_t channel = 0;  // which connection this is meant to be (for links: group and purpose)
};

// Blocking, on a non-blocking socket, until the deadline. kRefused: the sentence says what differs and what to do.
Status handshake_as_client(int fd, const Credentials& credentials, const Hello& hello, Deadline deadline);
Result<Hello> handshake_as_server(int fd, const Credentials& credentials, Role role, Deadline deadline);

// The server's side as a state machine for event loops: feed it when the socket is readable.
class ServerHandshake {
 public:
  ServerHandshake(const Credentials& credentials, Role role);  // `credentials` must outlive it
  // true: finished, hello() is valid; false: needs more bytes. An error, for the log: close the connection
  // (kPeerLost: the client left before it said anything).
  Result<bool> advance(int fd);
  const Hello& hello() const { return hello_; }

 private:
  enum class Stage { kHello, kProof, kDone };

  Result<bool> fill(int fd, std::size_t size);  // whether bytes_ holds `size` bytes of the message awaited
  Status answer_hello(int fd);
  Status check_proof(int fd);

  const Credentials& credentials_;
  Role role_;
  Hello hello_;
  Stage stage_ = Stage::kHello;
  std::array<std::byte, 160> bytes_{};  // of the message awaited
  std::size_t have_ = 0;
  std::array<std::byte, 32> expected_proof_{};
};

}  // namespace tutti::transport
