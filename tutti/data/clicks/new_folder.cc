#include "tutti/data/clicks/new_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace tutti {
namespace {

namespace fs = std::filesystem;

Status empty_folder(const std::string& path) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    fs::remove_all(entry.path(), error);
    if (error) return system_error(error.value(), fmt::format("cannot remove {}", entry.path().string()));
  }
  if (error) return system_error(error.value(), fmt::format("cannot read the folder {}", path));
  return {};
}

Status flush_folder(const std::string& path) {
  const Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) != 0)
    return system_error(errno, fmt::format("cannot flush the folder {}", path));
  return {};
}

}  // namespace

Result<NewFolder> NewFolder::create(const std::string& given) {
  std::string path = given;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (path.empty()) return invalid_argument("a folder without a name cannot be made");
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0)
    return invalid_argument(fmt::format("{} is there already", path), "give another name, or remove it first");
  std::string working = path + ".unfinished";
  if (::mkdir(working.c_str(), 0777) != 0 && errno != EEXIST)
    return system_error(errno, fmt::format("cannot make the folder {}", working));
  Fd lock(::open(working.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock) return system_error(errno, fmt::format("cannot open the folder {}", working));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return invalid_argument(fmt::format("another process is making {}", path), "wait for it, or give another name");
  TUTTI_TRY(empty_folder(working));
  return NewFolder(std::move(path), std::move(working), std::move(lock));
}

NewFolder::~NewFolder() {
  std::error_code ignored;  // what is left has a name that says so
  if (lock_) fs::remove_all(working_, ignored);
}

Status NewFolder::commit() {
  TUTTI_TRY(flush_folder(working_));
  if (::renameat2(AT_FDCWD, working_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0)
    return system_error(errno, fmt::format("cannot rename {} to {}", working_, path_));
  lock_.reset();
  return flush_folder(fs::path(path_).parent_path().empty() ? "." : fs::path(path_).parent_path().string());
}

}  // namespace tutti
