// rename() replaces whatever has the name: a link instead of the file that it leads to, and, for root, /dev/full
// instead of complaining. So links are followed first, and only a regular file, or nothing, is replaced. The temporary
// file is born private and gets the mode of the file that it replaces before it takes its name. The folder is flushed
// last, because the new name is an entry of it.
#include "tutti/checkpoint/io/replace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "tutti/base/fd.h"
#include "tutti/base/file.h"

namespace tutti {
namespace {

constexpr int kMostLinks = 40;  // as the kernel's own limit

std::string folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

const char* kind_of(const struct stat& info) {
  if (S_ISDIR(info.st_mode)) return "a folder";
  if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)) return "a device";
  if (S_ISFIFO(info.st_mode)) return "a pipe";
  if (S_ISSOCK(info.st_mode)) return "a socket";
  return "something else";
}

// A link that leads nowhere yet is followed as well: open() would make the file there.
Result<std::string> follow_links(std::string path) {
  for (int links = 0; links <= kMostLinks; ++links) {
    std::error_code error;
    if (std::filesystem::symlink_status(path, error).type() != std::filesystem::file_type::symlink) return path;
    const auto target = std::filesystem::read_symlink(path, error);
    if (error) return system_error(error.value(), fmt::format("cannot read the link {}", path));
    path = (std::filesystem::path(folder_of(path)) / target).string();
  }
  return system_error(ELOOP, fmt::format("cannot follow {}", path));
}

constexpr const char* kOtherPlace = "give a path in a folder that this user may write to";

// A file of a process that had our number and was killed goes.
Result<Fd> create_temporary(const std::string& name, const ReplaceableFile& place) {
  (void)::unlink(name.c_str());
  Fd fd(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, place.existing ? 0600 : 0666));
  if (!fd) return system_error(errno, fmt::format("cannot create {}", name), kOtherPlace);
  return fd;
}

std::string temporary_name(const ReplaceableFile& place) { return fmt::format("{}.tmp.{}", place.path, ::getpid()); }

Status write_whole(const std::string& name, const ReplaceableFile& place,
                   const std::function<Status(int fd, const std::string& name)>& write) {
  const Fd fd = TUTTI_TRY(create_temporary(name, place));
  TUTTI_TRY(write(fd.get(), name));
  if (place.existing) {
    const struct stat& old = *place.existing;
    [[maybe_unused]] const int owner = ::fchown(fd.get(), old.st_uid, old.st_gid);  // others than root may not
    if (::fchmod(fd.get(), old.st_mode & 07777) != 0)
      return system_error(errno, fmt::format("cannot give {} the mode of {}", name, place.path));
  }
  if (::fsync(fd.get()) != 0) return system_error(errno, fmt::format("cannot flush {}", name));
  return {};
}

}  // namespace

Result<ReplaceableFile> replaceable_file(const std::string& path) {
  ReplaceableFile place{.path = TUTTI_TRY(follow_links(path)), .existing = {}};
  const std::string what = place.path == path ? path : fmt::format("{} (a link to {})", path, place.path);
  struct stat info {};
  if (::stat(place.path.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode))
      return invalid_argument(fmt::format("cannot write {}: it is {}, not a file", what, kind_of(info)),
                              "give the name of a file that may be replaced, or of none yet");
    if (::access(place.path.c_str(), W_OK) != 0)
      return system_error(errno, fmt::format("cannot write {}", what), kOtherPlace);
    place.existing = info;
  } else if (errno != ENOENT) {
    return system_error(errno, fmt::format("cannot write {}", what), kOtherPlace);
  } else if (place.path.empty() || place.path.ends_with('/')) {
    return invalid_argument(fmt::format("cannot write \"{}\": that is no name of a file", what));
  }
  const std::string folder = folder_of(place.path);
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return system_error(errno, fmt::format("cannot write {}: the folder {}", what, folder),
                        "give another path, or make the folder");
  return place;
}

Status try_to_replace(const std::string& path) {
  const ReplaceableFile place = TUTTI_TRY(replaceable_file(path));
  const std::string temporary = temporary_name(place);
  (void)TUTTI_TRY(create_temporary(temporary, place));
  (void)::unlink(temporary.c_str());
  return {};
}

Status try_folder(const std::string& folder) {
  std::string name = (std::filesystem::path(folder) / ".probe-XXXXXX").string();
  const Fd file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file)
    return system_error(errno, fmt::format("cannot make a file in the folder {}", folder),
                        "give a folder that is there, and that this user may write to");
  (void)::unlink(name.c_str());
  return {};
}

Status make_writable_folder(const std::string& folder) {
  TUTTI_TRY(make_folder(folder));
  return try_folder(folder);
}

Status replace_file(const std::string& path, const std::function<Status(int fd, const std::string& name)>& write) {
  const ReplaceableFile place = TUTTI_TRY(replaceable_file(path));
  const std::string temporary = temporary_name(place);
  Status written = write_whole(temporary, place, write);
  if (written.ok() && ::rename(temporary.c_str(), place.path.c_str()) != 0)
    written = system_error(errno, fmt::format("cannot rename {} to {}", temporary, place.path));
  if (!written.ok()) {
    (void)::unlink(temporary.c_str());
    return written;
  }
  return sync_folder(folder_of(place.path));
}

}  // namespace tutti
