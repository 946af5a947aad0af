#include "tutti/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>

#include "tutti/base/fd.h"
#include "tutti/base/text.h"

namespace tutti {

namespace {

constexpr std::size_t kMostAtOnce = std::size_t(256) << 20;  // Linux transfers at most 2 GiB per call

}  // namespace

Result<Fd> open_file(const std::string& path, int more) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | more));
  if (fd) return fd;
  Error error = system_error(errno, fmt::format("cannot open {}", path));
  if (error.errno_value == ENOENT) error.code = Code::kNotFound;
  return error;
}

Status write_all(int fd, std::span<const std::byte> bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), std::min(bytes.size(), kMostAtOnce));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return system_error(errno, fmt::format("cannot write {}", name));
    bytes = bytes.subspan(std::size_t(put));
  }
  return {};
}

Status read_all(int fd, std::uint64_t offset, std::span<std::byte> into, const std::string& name) {
  while (!into.empty()) {
    const ssize_t got = ::pread(fd, into.data(), std::min(into.size(), kMostAtOnce), off_t(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(errno, fmt::format("cannot read {}", name));
    if (got == 0)
      return Error{.code = Code::kCorrupt,
                   .detail = fmt::format("{} ends at byte {}, {} bytes before it should", name, offset, into.size())};
    into = into.subspan(std::size_t(got));
    offset += std::uint64_t(got);
  }
  return {};
}

Status write_file(const std::string& path, std::string_view text) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd) return system_error(errno, fmt::format("cannot write {}", path));
  return write_all(fd.get(), std::as_bytes(std::span(text)), path);
}

Result<std::string> read_file(const std::string& path, std::uint64_t most) {
  const Fd fd = TUTTI_TRY(open_regular_file(path));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return system_error(errno, fmt::format("cannot look at {}", path));
  if (std::uint64_t(info.st_size) > most)
    return Error{.code = Code::kLimit,
                 .detail = fmt::format("{} has {}; at most {} are read", path, bytes_text(std::uint64_t(info.st_size)),
                                       bytes_text(most))};
  std::string text(std::size_t(info.st_size), '\0');
  TUTTI_TRY(read_all(fd.get(), 0, std::as_writable_bytes(std::span(text)), path));
  return text;
}

Status sync_folder(const std::string& folder) {
  const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return system_error(errno, fmt::format("cannot flush the folder {}", folder));
  return {};
}

// The temporary name is random, because processes of several hosts with the same pid may write to the same path of a
// shared file system at once. If the name exists nevertheless, O_EXCL makes the call fail instead of following it.

namespace {

Status write_there(const std::string& path, std::string_view text) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd) return system_error(errno, fmt::format("cannot create {}", path));
  return write_all(fd.get(), std::as_bytes(std::span(text)), path);
}

}  // namespace

Status write_new_file(const std::string& path, std::string_view text) {
  std::uint64_t noise = 0;
  if (::getrandom(&noise, sizeof noise, 0) != sizeof noise) noise = std::uint64_t(::getpid());
  const std::string temporary = fmt::format("{}.tmp.{:016x}", path, noise);
  Status written = write_there(temporary, text);
  if (written.ok() && std::rename(temporary.c_str(), path.c_str()) != 0)
    written = system_error(errno, fmt::format("cannot write {}", path));
  if (!written.ok()) (void)::unlink(temporary.c_str());
  return written;
}

Result<Fd> open_regular_file(const std::string& path) {
  Fd fd = TUTTI_TRY(open_file(path, O_NONBLOCK));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return system_error(errno, fmt::format("cannot look at {}", path));
  if (!S_ISREG(info.st_mode)) return invalid_argument(fmt::format("{} is not a regular file", path));
  return fd;
}

// For a dangling link the system reports "File exists". For a file in the middle of a path it does not say which part
// of the path that is. So if a folder cannot be created, its path is examined part by part.

namespace {

namespace fs = std::filesystem;

// The final target of a chain of links.
fs::path end_of_links(fs::path path) {
  constexpr int kMost = 40;  // the limit of Linux
  std::error_code error;
  for (int links = 0; links < kMost && fs::is_symlink(path, error); ++links)
    path = (path.parent_path() / fs::read_symlink(path, error)).lexically_normal();
  return path;
}

// Describes the obstacle at this part of the path and what to do.
std::optional<Error> obstacle(const std::string& folder, const fs::path& part) {
  std::error_code error;
  const fs::file_type behind = fs::status(part, error).type();
  if (behind == fs::file_type::directory) return {};
  const auto cannot = [&](const std::string& why, std::string hint) {
    return invalid_argument(fmt::format("cannot make the folder {}: {}", folder, why), std::move(hint));
  };
  if (!fs::is_symlink(part, error))
    return cannot(fmt::format("{} is there, and is no folder", part.string()),
                  "give another folder, or move what is there away");
  const std::string end = end_of_links(part).string();
  if (behind == fs::file_type::not_found)
    return cannot(fmt::format("{} is a link to {}, which is not there", part.string(), end),
                  fmt::format("make {}, give another folder, or remove the link", end));
  return cannot(fmt::format("{} is a link to {}, which is no folder", part.string(), end),
                "give another folder, or remove the link");
}

std::optional<Error> first_obstacle(const std::string& folder) {
  fs::path path;
  for (const fs::path& part : fs::path(folder)) {
    path /= part;
    std::error_code error;
    if (!fs::exists(fs::symlink_status(path, error))) return {};
    if (auto found = obstacle(folder, path)) return found;
  }
  return {};
}

}  // namespace

Status make_folder(const std::string& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (!failure && fs::is_directory(folder, failure)) return {};
  if (auto found = first_obstacle(folder)) return *std::move(found);
  return system_error(failure.value(), fmt::format("cannot make the folder {}", folder),
                      "give a folder that is there, or in a place where this user may make one");
}

bool may_grow_to(std::uint64_t bytes) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && (limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur);
}

}  // namespace tutti
