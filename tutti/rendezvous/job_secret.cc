// The runtime folder is private to the user, so a file in it may hold a key and a socket in it needs no further lock.
// /tmp is open to all: a folder there counts only after lstat has shown that it is a real one, ours, and closed.
//
// The ranks of a job race to make the key. Each would-be maker writes a file of its own name and link()s it to the
// common one: that either publishes the whole file or fails because another was first, so no rank ever reads half a
// key.
#include "tutti/rendezvous/job_secret.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>

#include "tutti/base/env.h"
#include "tutti/base/fd.h"
#include "tutti/base/text.h"
#include "tutti/rendezvous/identity.h"
#include "tutti/transport/socket.h"

namespace tutti::rendezvous {
namespace {

constexpr int kMostTries = 1000;    // a millisecond each
constexpr std::time_t kYoung = 60;  // seconds

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

Status publish_new_secret(const std::string& path) {
  std::string own = path + ".XXXXXX";
  const Fd file(::mkostemp(own.data(), O_CLOEXEC));  // exclusive, mode 0600
  if (!file) return system_error(errno, "cannot make the secret file " + own);
  const std::string text = transport::random_secret_text() + "\n";
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

bool is_old(const struct stat& info) { return std::time(nullptr) - info.st_mtime >= kYoung; }

void sweep_secret(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) (void)::unlink(path.c_str());
}

}  // namespace

void JobSecret::give_up() {
  if (held && ::flock(held.get(), LOCK_EX | LOCK_NB) == 0) (void)::unlink(file.c_str());
  held.reset();
}

Result<std::string> runtime_directory(const Environment& environment) {
  return choose_runtime_directory(environment, make_private);
}

Result<std::string> find_runtime_directory(const Environment& environment) {
  return choose_runtime_directory(environment, check_private);
}

Result<transport::Secret> secret_in(const std::string& file) {
  auto secret = transport::Secret::from_file(file);
  if (secret.ok()) return secret;
  Error error = secret.error();
  error.code = Code::kUsage;
  return error;
}

Result<std::optional<transport::Secret>> given_secret(const Environment& environment) {
  if (const auto fd = lookup(environment, "TUTTI_SECRET_FD"))
    return std::optional(TUTTI_TRY(transport::Secret::from_descriptor(*fd)));
  if (const auto path = lookup(environment, "TUTTI_SECRET_FILE")) return std::optional(TUTTI_TRY(secret_in(*path)));
  if (const auto text = lookup(environment, "TUTTI_SECRET")) return std::optional(transport::Secret::from_text(*text));
  if (const auto text = lookup(environment, "TUTTI_INSECURE")) {
    if (*text == "1" || *text == "true" || *text == "yes" || *text == "on")
      return std::optional(transport::Secret::none());
    if (*text != "0" && *text != "false" && *text != "no" && *text != "off")
      return Error{.code = Code::kUsage,
                   .detail = "the environment variable TUTTI_INSECURE is \"" + *text + "\", expected 1 or 0"};
  }
  return std::optional<transport::Secret>();
}

Result<JobSecret> job_secret(const Environment& environment, const std::string& job, bool one_host,
                             const std::string& why_not) {
  if (const auto given = TUTTI_TRY(given_secret(environment))) return JobSecret{*given, {}};
  if (!one_host)
    return Error{.code = Code::kRefused,
                 .detail = "the job has no secret, and " + why_not + ": anybody who reaches its ports could join it",
                 .hint =
                     "give every rank the same TUTTI_SECRET_FILE (a file of mode 0600, for example from openssl rand "
                     "-hex 32) or "
                     "TUTTI_SECRET, or do without one: TUTTI_INSECURE=1"};
  const std::string folder = TUTTI_TRY(runtime_directory(environment));
  const std::string path = folder + "/" + file_name_of(job) + ".secret";
  sweep_runtime_directory(folder);
  // A file that a finishing job or a sweep removes between our steps is made anew.
  for (int attempt = 0;; ++attempt) {
    TUTTI_TRY(publish_new_secret(path));
    auto held = hold(path);
    if (held.ok()) return JobSecret{TUTTI_TRY(transport::Secret::from_file(path)), path, *std::move(held)};
    if (held.error().errno_value != ENOENT || attempt == kMostTries) return held.status();
    const timespec pause{0, 1'000'000};  // the process that removes it holds it for a moment
    (void)::nanosleep(&pause, nullptr);
  }
}

// No process numbers: a lock and a listening socket belong to the kernel, which ends them with their owner, whereas a
// number may have been given to another process.
void sweep_runtime_directory(const std::string& folder) {
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder, error); !error && entry != std::filesystem::end(entry);
       entry.increment(error)) {
    const std::string path = entry->path(), name = entry->path().filename();
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0 || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) continue;
    if (S_ISSOCK(info.st_mode) && name.ends_with(".sock") && is_old(info) && transport::is_abandoned_socket(path))
      (void)::unlink(path.c_str());
    if (!S_ISREG(info.st_mode)) continue;
    const bool half_made = name.find(".secret.") != std::string::npos;
    if (name.ends_with(".secret") || (half_made && is_old(info))) sweep_secret(path);
  }
}

}  // namespace tutti::rendezvous
