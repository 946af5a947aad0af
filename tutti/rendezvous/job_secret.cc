// The runtime folder is private to the user, so a file in it may hold a key and a socket in it needs no further lock.
// /tmp is open to all: a folder there counts only after lstat has shown that it is a real one, ours, and closed.
//
// The ranks of a job race to make the key. Each would-be maker writes a file of its own name and link()s it to the
// common one: that either publishes the whole file or fails because another was first, so nobody ever reads half a key.
#include "tutti/rendezvous/job_secret.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <span>

#include "tutti/base/env.h"
#include "tutti/base/text.h"
#include "tutti/rendezvous/identity.h"

namespace tutti {
namespace {

constexpr int kMostTries = 1000;  // a millisecond each
constexpr std::size_t kSecretSize = 32;

Result<Secret> secret_of_descriptor(const std::string& text) {
  const auto wrong = [&](const std::string& how) {
    return Error{.code = Code::kUsage,
                 .detail = "TUTTI_SECRET_FD is \"" + text + "\", " + how,
                 .hint =
                     "a program between tutti run and this one closes descriptors; give the secret as a file: tutti "
                     "run --secret-file"};
  };
  const auto fd = parse_int(text);
  if (!fd || *fd < 0 || *fd > INT32_MAX) return wrong("expected the number of a descriptor");
  std::array<std::byte, kSecretSize + 1> bytes;
  // From the start and without moving the offset, which all workers share.
  const ssize_t size = ::pread(int(*fd), bytes.data(), bytes.size(), 0);
  if (size < 0) return wrong(errno == EBADF ? "but no such descriptor is open" : "but it cannot be read as a secret");
  if (std::size_t(size) != kSecretSize) return wrong("but it holds no secret of 32 bytes");
  return Secret::from_bytes(std::span(bytes).first(kSecretSize));
}

}  // namespace

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

namespace {

// Whether `path` is a folder that only this user can enter; an errno or a clause that says why not.
Status check_private(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return system_error(errno, "cannot look at " + path);
  const auto refuse = [&](const std::string& why) {
    return Error{.code = Code::kRefused,
                 .detail = path + " " + why + ", so no secret can be kept there",
                 .hint = "remove it or set XDG_RUNTIME_DIR to a folder of your own with mode 0700"};
  };
  if (!S_ISDIR(info.st_mode)) return refuse("is no folder");
  if (info.st_uid != ::geteuid()) return refuse("belongs to the user with id " + std::to_string(info.st_uid));
  if ((info.st_mode & 077) != 0) return refuse("can be entered by others");
  return {};
}

Status make_private(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return system_error(errno, "cannot make the folder " + path);
  return check_private(path);
}

}  // namespace

std::string random_secret_text() {
  const Secret secret = Secret::random();
  std::string text;
  for (const std::byte byte : secret.bytes()) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", unsigned(byte));
    text += digits;
  }
  return text;
}

namespace {

Status publish_new_secret(const std::string& path) {
  std::string own = path + ".XXXXXX";
  const Fd file(::mkostemp(own.data(), O_CLOEXEC));  // exclusive, mode 0600
  if (!file) return system_error(errno, "cannot make the secret file " + own);
  const std::string text = random_secret_text() + "\n";
  const bool written = ::write(file.get(), text.data(), text.size()) == ssize_t(text.size());
  const int write_error = errno;
  const bool linked = written && (::link(own.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int link_error = errno;
  (void)::unlink(own.c_str());
  if (!written) return system_error(write_error, "cannot write the secret file " + own);
  if (!linked) return system_error(link_error, "cannot make the secret file " + path);
  return {};
}

// A lock that says "in use". ENOENT if the file went while we took it.
Result<Fd> hold(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return system_error(errno, "cannot open the secret file " + path);
  if (::flock(file.get(), LOCK_SH | LOCK_NB) != 0)
    return system_error(errno == EWOULDBLOCK ? ENOENT : errno, "cannot lock the secret file " + path);
  struct stat info;
  if (::fstat(file.get(), &info) != 0 || info.st_nlink == 0)
    return system_error(ENOENT, "cannot keep the secret file " + path);
  return file;
}

}  // namespace

void JobSecret::give_up() {
  if (held && ::flock(held.get(), LOCK_EX | LOCK_NB) == 0) (void)::unlink(file.c_str());
  held.reset();
}

namespace {

// The first that `usable` takes; the error is that of the last.
Result<std::string> choose_runtime_directory(const Environment& environment, Status (*usable)(const std::string&)) {
  const std::string user_folder = "/run/user/" + std::to_string(::geteuid());
  for (const std::string& parent : {lookup(environment, "XDG_RUNTIME_DIR").value_or(""), user_folder}) {
    if (parent.empty() || !check_private(parent).ok()) continue;
    const std::string path = parent + "/tutti";
    if (usable(path).ok()) return path;
  }
  const std::string path = lookup(environment, "TMPDIR").value_or("/tmp") + "/tutti-" + std::to_string(::geteuid());
  TUTTI_TRY(usable(path));
  return path;
}

}  // namespace

Result<std::string> runtime_directory(const Environment& environment) {
  return choose_runtime_directory(environment, make_private);
}

Result<std::string> find_runtime_directory(const Environment& environment) {
  return choose_runtime_directory(environment, check_private);
}

Result<Secret> secret_in(const std::string& file) {
  auto secret = Secret::from_file(file);
  if (secret.ok()) return secret;
  Error error = secret.error();
  error.code = Code::kUsage;
  return error;
}

Result<std::optional<Secret>> given_secret(const Environment& environment) {
  if (const auto fd = lookup(environment, "TUTTI_SECRET_FD"))
    return std::optional(TUTTI_TRY(secret_of_descriptor(*fd)));
  if (const auto path = lookup(environment, "TUTTI_SECRET_FILE")) return std::optional(TUTTI_TRY(secret_in(*path)));
  if (const auto text = lookup(environment, "TUTTI_SECRET")) return std::optional(Secret::from_text(*text));
  if (const auto text = lookup(environment, "TUTTI_INSECURE")) {
    if (*text == "1" || *text == "true" || *text == "yes" || *text == "on") return std::optional(Secret::none());
    if (*text != "0" && *text != "false" && *text != "no" && *text != "off")
      return Error{.code = Code::kUsage,
                   .detail = "the environment variable TUTTI_INSECURE is \"" + *text + "\", expected 1 or 0"};
  }
  return std::optional<Secret>();
}

Result<JobSecret> job_secret(const Environment& environment, const std::string& job, bool one_host,
                             const std::string& why_not) {
  if (const auto given = TUTTI_TRY(given_secret(environment))) return JobSecret{*given, {}};
  if (!one_host)
    return Error{.code = Code::kRefused,
                 .detail = "the job has no secret, and " + why_not + ": whoever reaches its ports could join it",
                 .hint =
                     "give every rank the same TUTTI_SECRET_FILE (a file of mode 0600, for example from openssl rand "
                     "-hex 32) or "
                     "TUTTI_SECRET, or accept strangers with TUTTI_INSECURE=1"};
  const std::string folder = TUTTI_TRY(runtime_directory(environment));
  const std::string path = folder + "/" + file_name_of(job) + ".secret";
  sweep_runtime_directory(folder);
  // A file that a finishing job or a sweep removes between our steps is made anew.
  for (int attempt = 0;; ++attempt) {
    TUTTI_TRY(publish_new_secret(path));
    auto held = hold(path);
    if (held.ok()) return JobSecret{TUTTI_TRY(Secret::from_file(path)), path, *std::move(held)};
    if (held.error().errno_value != ENOENT || attempt == kMostTries) return held.status();
    const timespec pause{0, 1'000'000};  // whoever removes it holds it for a moment
    (void)::nanosleep(&pause, nullptr);
  }
}

}  // namespace tutti
