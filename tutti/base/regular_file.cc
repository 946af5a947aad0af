#include "tutti/base/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>

#include "tutti/base/file.h"

namespace tutti {

Result<Fd> open_regular_file(const std::string& path) {
  Fd fd = TUTTI_TRY(open_file(path, O_NONBLOCK));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return system_error(errno, fmt::format("cannot look at {}", path));
  if (!S_ISREG(info.st_mode)) return invalid_argument(fmt::format("{} is not a regular file", path));
  return fd;
}

}  // namespace tutti
