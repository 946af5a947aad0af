#pragma once
// Who may connect. Both sides of every connection of a job prove that they hold the job's secret, before a byte of
// anything else is read: a challenge and response with HMAC-SHA256 both ways, bound to job id, role, rank and generation.
//
//   HELLO      client -> server  magic, version, SHA-256 of the job id, role, rank, generation, nonce
//   CHALLENGE  server -> client  nonce, HMAC(key, "S" | transcript)
//   PROOF      client -> server  HMAC(key, "C" | transcript); answered by one byte: 0 welcome, else the reason for refusal
//
// The key of a role is HKDF-SHA256(secret, role), so a key for the store opens no data connection. Fixed sizes, no
// allocation from what the peer sends. Both sides compare in constant time. A foreign job, a wrong secret, another
// generation and a stranger (no magic) are told apart in the error as far as the protocol lets them be.
#include <array>
#include <span>
#include <cstdint>
#include <string>

#include "tutti/base/deadline.h"
#include "tutti/base/fd.h"

namespace tutti {

// 32 bytes from getrandom, or derived from what the user gave. Never printed: to_string gives a short fingerprint.
class Secret {
 public:
  static Secret random();
  static Secret from_text(std::string_view text);  // SHA-256 of the text
  static Secret none();                            // --insecure: the handshake still names job, role and generation
  static Result<Secret> from_bytes(std::span<const std::byte> bytes);  // exactly 32
  // A file of mode 0600 (or stricter) owned by this user; trailing white space is ignored.
  static Result<Secret> from_file(const std::string& path);

  std::span<const std::byte, 32> bytes() const { return bytes_; }
  bool is_none() const { return none_; }
  std::string fingerprint() const;  // first 4 bytes of its SHA-256, as hex

 private:
  std::array<std::byte, 32> bytes_{};
  bool none_ = false;
};

enum class Role : std::uint8_t { kStore = 1, kLocal = 2, kData = 3 };

// What both ends must agree on.
struct Credentials {
  Secret secret;
  std::string job;               // id of the job
  std::uint32_t generation = 0;  // of the world: a rank of an earlier one is refused
};

// What the client says of itself; the server gets it verified.
struct Hello {
  Role role = Role::kStore;
  std::int32_t rank = -1;        // global rank, -1 if none yet
  std::uint64_t channel = 0;     // which connection this is meant to be (for links: group and purpose)
};

// Blocking, on a non-blocking socket, until the deadline.
Status handshake_as_client(int fd, const Credentials& credentials, const Hello& hello, Deadline deadline);
Result<Hello> handshake_as_server(int fd, const Credentials& credentials, Role role, Deadline deadline);

// The server's side as a state machine for event loops: feed it when the socket is readable.
class ServerHandshake {
 public:
  ServerHandshake(const Credentials& credentials, Role role);
  // true: finished, hello() is valid; false: needs more bytes. An error: close the connection.
  Result<bool> advance(int fd);
  const Hello& hello() const { return hello_; }

 private:
  const Credentials& credentials_;
  Role role_;
  Hello hello_;
  std::array<std::byte, 256> buffer_{};  // bytes received of the message awaited
  std::size_t have_ = 0;
  int stage_ = 0;
  std::array<std::byte, 256> transcript_{};
};

}  // namespace tutti
