// Where a job's secret comes from, and the checks that a file must pass before it counts as one.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tutti/base/text.h"
#include "tutti/transport/crypto.h"
#include "tutti/transport/handshake.h"

namespace tutti {
namespace {

constexpr std::size_t kLeastCharacters = 20;  // 32 hexadecimal digits are 128 bits, 22 letters of base64 as well

}  // namespace

Secret Secret::random() {
  Secret secret;
  crypto::fill_random(secret.bytes_);
  return secret;
}

Secret Secret::from_text(std::string_view text) {
  Secret secret;
  secret.bytes_ = crypto::sha256(text);
  secret.short_ = text.size() < kLeastCharacters;
  return secret;
}

Secret Secret::none() {
  Secret secret;
  secret.none_ = true;
  return secret;
}

Result<Secret> Secret::from_bytes(std::span<const std::byte> bytes) {
  Secret secret;
  if (bytes.size() != secret.bytes_.size())
    return invalid_argument("a secret has " + std::to_string(secret.bytes_.size()) + " bytes, " +
                            std::to_string(bytes.size()) + " were given");
  std::copy(bytes.begin(), bytes.end(), secret.bytes_.begin());
  return secret;
}

Result<Secret> Secret::from_file(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe by mistake does not block
  if (!file)
    return system_error(errno, "cannot read the secret file " + path,
                        errno == ENOENT ? "make one: (umask 077; openssl rand -hex 32 > " + path +
                                              "), and copy it to all hosts of the job"
                                        : "");
  struct stat info;
  if (::fstat(file.get(), &info) != 0) return system_error(errno, "cannot read the secret file " + path);
  if (!S_ISREG(info.st_mode)) return invalid_argument("the secret file " + path + " is no regular file");
  if (info.st_uid != ::geteuid())
    return Error{
        .code = Code::kRefused,
        .detail = "the secret file " + path + " belongs to another user (id " + std::to_string(info.st_uid) + ")",
        .hint = "make a copy of your own with mode 0600"};
  if ((info.st_mode & 077) != 0)
    return Error{.code = Code::kRefused,
                 .detail = "the secret file " + path + " can be read or written by others",
                 .hint = "chmod 600 " + path};
  std::string text(4097, '\0');
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  if (size < 0) return system_error(errno, "cannot read the secret file " + path);
  if (size > 4096)
    return invalid_argument("the secret file " + path + " has more than 4096 bytes",
                            "32 random bytes as text are plenty: openssl rand -hex 32");
  const std::string_view secret = trim(std::string_view(text).substr(0, std::size_t(size)));
  if (secret.empty())
    return invalid_argument("the secret file " + path + " is empty", "for example: openssl rand -hex 32 > " + path);
  return from_text(secret);
}

std::string Secret::warning() const {
  if (!short_) return {};
  return "the job's secret has fewer than " + std::to_string(kLeastCharacters) +
         " characters: who can connect can find it by trying words; take a random one (openssl rand -hex 32)";
}

std::string Secret::fingerprint() const {
  if (none_) return "none";
  std::string text;
  const crypto::Digest digest = crypto::sha256(bytes_);
  for (const std::byte b : std::span(digest).first(4)) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[std::to_integer<unsigned>(b) >> 4];
    text += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  return text;
}

}  // namespace tutti
