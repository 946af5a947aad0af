#pragma once
// The secret that all processes of a job share: whoever holds it may join (handshake.h). rendezvous/job_secret.h finds
// the secret of a job.
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti::transport {

// 32 bytes from getrandom, or derived from what the user gave. Never printed; logs show its fingerprint.
class Secret {
 public:
  static Secret random();
  static Secret from_text(std::string_view text);  // SHA-256 of the text, which should be random
  static Secret none();                            // --insecure: the handshake still names job, role and generation
  static Result<Secret> from_bytes(std::span<const std::byte> bytes);  // exactly 32
  // A file of mode 0600 (or stricter) owned by this user; trailing white space is ignored.
  static Result<Secret> from_file(const std::string& path);

  // `number`: that of an open descriptor, as secret_descriptor() made it (TUTTI_SECRET_FD). kUsage.
  static Result<Secret> from_descriptor(const std::string& number);

  std::span<const std::byte, 32> bytes() const { return bytes_; }
  bool is_none() const { return none_; }
  std::string fingerprint() const;  // first 4 bytes of its SHA-256, as hex
  // A sentence for the log if it was made from a text so short that it may be guessed; else empty.
  std::string warning() const;

 private:
  std::array<std::byte, 32> bytes_{};
  bool none_ = false, short_ = false;
};

// The secret in memory that nobody can change, for a child process: in no file and on no command line. Close-on-exec.
Result<Fd> secret_descriptor(const Secret& secret);
// 64 hexadecimal digits to make a secret of.
std::string random_secret_text();

}  // namespace tutti::transport
