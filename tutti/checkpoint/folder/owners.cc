// Digests tell what has changed by accident. Whoever may write the files may write other digests as well: that is told
// by the owner alone. Folders that one group shares are common, so its right to write is not held against a file.
#include "tutti/checkpoint/folder/owners.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <random>
#include <vector>

#include "tutti/base/fd.h"

namespace tutti {
namespace {

// "alice (1000)"
std::string user_text(uid_t user) {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 4096> memory;
  const bool known = ::getpwuid_r(user, &entry, memory.data(), memory.size(), &found) == 0 && found;
  return known ? fmt::format("{} ({})", found->pw_name, user) : fmt::format("{}", user);
}

// None: nothing can be made there.
std::optional<uid_t> owner_of_new_files(const std::string& folder) {
  if (folder.empty()) return {};
  std::random_device random;
  const std::string path = fmt::format("{}/.probe-{:08x}{:08x}-owner", folder, random(), random());
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return {};
  struct stat info {};
  const bool seen = ::fstat(fd.get(), &info) == 0;
  (void)::unlink(path.c_str());
  return seen ? std::optional(info.st_uid) : std::nullopt;
}

}  // namespace

std::string others_may_change(const std::string& checkpoint, const Manifest& manifest, const std::string& save_folder) {
  std::vector<std::string> paths = {checkpoint, checkpoint + "/" + kManifestName};
  for (const StoredFile& file : manifest.files) paths.push_back(checkpoint + "/" + file.name);
  const uid_t me = ::geteuid();
  std::optional<uid_t> mine_there;  // asked for where it matters
  for (const std::string& path : paths) {
    struct stat link {
    }, info{};
    // Was opened a moment ago: who reads it will tell.
    if (::lstat(path.c_str(), &link) != 0 || ::stat(path.c_str(), &info) != 0) continue;
    const bool sticky_folder = S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX) != 0;
    if ((info.st_mode & S_IWOTH) != 0 && !sticky_folder)
      return fmt::format("{} may be written by every user (its mode is {:04o})", path, info.st_mode & 07777);
    for (const uid_t owner : {link.st_uid, info.st_uid}) {  // whoever has a link lets it lead elsewhere
      if (owner == me || owner == 0) continue;
      if (!mine_there) mine_there = owner_of_new_files(save_folder).value_or(me);
      if (owner != *mine_there)
        return fmt::format("{} belongs to the user {}, and this run to {}", path, user_text(owner), user_text(me));
    }
  }
  return {};
}

}  // namespace tutti
