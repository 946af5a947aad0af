#include "tutti/trace/flight/dump.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>


namespace tutti {
namespace {

namespace fs = std::filesystem;

// By its name alone: TMPDIR may have changed since somebody asked for it.
bool is_default(const std::string& folder) {
  const std::string begin = fs::path(default_flight_folder("")).filename();
  return fs::path(folder).filename().string().starts_with(begin);
}

// Under /tmp anybody may have made a folder of this name, and would read, or lead elsewhere, what is written there.
Status check_own(const std::string& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0) return system_error(errno, fmt::format("cannot look at {}", folder));
  if (S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() && (info.st_mode & 022) == 0) return {};
  return Error{
      .code = Code::kRefused,
      .detail = fmt::format("{} is not a folder of this user alone, so no flight record is written there", folder),
      .hint = "set TUTTI_FLIGHT_DIR"};
}

}  // namespace

Status make_flight_folder(const std::string& folder) {
  if (is_default(folder)) {
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
      return system_error(errno, fmt::format("cannot make the folder {}", folder), "set TUTTI_FLIGHT_DIR");
    return check_own(folder);
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return system_error(error.value(), fmt::format("cannot make the folder {}", folder));
  return {};
}

bool is_own_flight_folder(const std::string& folder) {
  std::error_code ignored;
  return is_default(folder) ? check_own(folder).ok() : fs::is_directory(folder, ignored);
}

}  // namespace tutti
