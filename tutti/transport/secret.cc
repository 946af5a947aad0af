// The ways to hold a secret, and the checks that a file or a descriptor must pass before it counts as one.
#include "tutti/transport/secret.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tutti/base/text.h"
#include "tutti/transport/crypto.h"

namespace tutti::transport {
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
                            "32 random bytes as text are enough: openssl rand -hex 32");
  const std::string_view secret = trim(std::string_view(text).substr(0, std::size_t(size)));
  if (secret.empty())
    return invalid_argument("the secret file " + path + " is empty", "for example: openssl rand -hex 32 > " + path);
  return from_text(secret);
}

std::string Secret::warning() const {
  if (!short_) return {};
  return "the job's secret has fewer than " + std::to_string(kLeastCharacters) +
         " characters: anybody who can connect can guess it; use a random one (openssl rand -hex 32)";
}

std::string Secret::fingerprint() const {
  if (none_) return "none";
  const crypto::Digest digest = crypto::sha256(bytes_);
  return crypto::to_hex(std::span(digest).first(4));
}

Result<Secret> Secret::from_descriptor(const std::string& number) {
  const auto wrong = [&](const std::string& how) {
    return Error{.code = Code::kUsage,
                 .detail = "TUTTI_SECRET_FD is \"" + number + "\", " + how,
                 .hint =
                     "a program between tutti run and this one closes descriptors; give the secret as a file: tutti "
                     "run --secret-file"};
  };
  const auto fd = parse_int(number);
  if (!fd || *fd < 0 || *fd > INT32_MAX) return wrong("expected the number of a descriptor");
  constexpr std::size_t kSize = sizeof(Secret::bytes_);
  std::array<std::byte, kSize + 1> bytes;
  // From the start and without moving the offset, which all workers share.
  const ssize_t size = ::pread(int(*fd), bytes.data(), bytes.size(), 0);
  if (size < 0) return wrong(errno == EBADF ? "but no such descriptor is open" : "but it cannot be read as a secret");
  if (std::size_t(size) != kSize) return wrong("but it holds no secret of 32 bytes");
  return from_bytes(std::span(bytes).first(kSize));
}

Result<Fd> secret_descriptor(const Secret& secret) {
  Fd fd(::memfd_create("tutti-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto bytes = secret.bytes();
  if (!fd || ::write(fd.get(), bytes.data(), bytes.size()) != ssize_t(bytes.size()) ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    return system_error(
        errno, "could not make the descriptor with the job's secret",
        errno == EFBIG ? "memory counts as a file for the limit of file sizes: ulimit -f unlimited" : "");
  return fd;
}

std::string random_secret_text() { return crypto::to_hex(Secret::random().bytes()); }

}  // namespace tutti::transport
