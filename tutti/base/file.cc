#include "tutti/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tutti/base/regular_file.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr std::size_t kMostAtOnce = std::size_t(256) << 20;  // Linux moves at most 2 GiB a call

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

}  // namespace tutti
