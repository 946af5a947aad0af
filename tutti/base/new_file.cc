// The name beside it is one that nobody can guess, because processes of several hosts with one number may write to the
// same path of a shared file system at once. Should it be taken nevertheless, O_EXCL does not follow what is there.
#include "tutti/base/new_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <span>

#include "tutti/base/fd.h"
#include "tutti/base/file.h"

namespace tutti {
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

}  // namespace tutti
