#include "tutti/data/placed_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "tutti/base/file.h"

namespace tutti {
namespace {

Error failed(int errno_value, const char* verb, const std::string& path) {
  const bool full = errno_value == ENOSPC || errno_value == EDQUOT;
  return system_error(errno_value, fmt::format("cannot {} {}", verb, path),
                      full ? "make room, or write to another disk: what was written so far is removed" : "");
}

}  // namespace

Result<PlacedFile> PlacedFile::create(const std::string& path) {
  PlacedFile file;
  file.path_ = path;
  file.fd_ = Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.fd_) return failed(errno, "create", path);
  return file;
}

Result<PlacedFile> PlacedFile::open(const std::string& path) {
  PlacedFile file;
  file.path_ = path;
  file.fd_ = TUTTI_TRY(open_regular_file(path));
  return file;
}

Result<std::uint64_t> PlacedFile::size() const {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return failed(errno, "look at", path_);
  return std::uint64_t(info.st_size);
}

Status PlacedFile::read(std::uint64_t at, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got = ::pread(fd_.get(), into.data(), into.size(), off_t(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(errno, "read", path_);
    if (got == 0)
      return Error{.code = Code::kCorrupt, .detail = fmt::format("{} ends at byte {}, too early", path_, at)};
    at += std::uint64_t(got);
    into = into.subspan(std::size_t(got));
  }
  return {};
}

Status PlacedFile::write(std::uint64_t at, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd_.get(), bytes.data(), bytes.size(), off_t(at));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return failed(errno, "write", path_);
    at += std::uint64_t(put);
    bytes = bytes.subspan(std::size_t(put));
  }
  return {};
}

Status PlacedFile::flush() const {
  if (::fsync(fd_.get()) != 0) return failed(errno, "flush", path_);
  return {};
}

Result<Mapping> PlacedFile::map() const {
  const std::uint64_t bytes = TUTTI_TRY(size());
  if (bytes == 0) return Mapping();
  void* base = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd_.get(), 0);
  if (base == MAP_FAILED) return failed(errno, "map", path_);
  return Mapping(base, bytes);
}

Status rename_file(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return failed(errno, "rename", from);
  return {};
}

Status remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0) return failed(errno, "remove", path);
  return {};
}

}  // namespace tutti
