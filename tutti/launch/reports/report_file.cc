#include "tutti/launch/reports/report_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <span>

#include "tutti/base/fd.h"
#include "tutti/base/file.h"

namespace tutti {
namespace {

Status write_in_place(const std::string& path, const std::string& text) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) return system_error(errno, "cannot write the report to " + path);
  if (!S_ISREG(info.st_mode) && !S_ISCHR(info.st_mode))
    return Error{.code = Code::kSystem, .detail = "cannot write the report to " + path + ", which is no file any more"};
  if (S_ISREG(info.st_mode) && ::ftruncate(fd.get(), 0) != 0)
    return system_error(errno, "cannot write the report to " + path);
  return write_all(fd.get(), std::as_bytes(std::span(text)), path);
}

}  // namespace

Status write_report_file(const std::string& path, const std::string& text) {
  struct stat info {};
  const bool there = ::lstat(path.c_str(), &info) == 0;
  if (there && (S_ISLNK(info.st_mode) || S_ISCHR(info.st_mode))) return write_in_place(path, text);
  const Status written = write_new_file(path, text);
  return written.ok() || !there || !S_ISREG(info.st_mode) ? written : write_in_place(path, text);
}

void remove_old_report(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) (void)::unlink(path.c_str());
}

}  // namespace tutti
