// No process numbers: a lock and a listening socket belong to the kernel, which ends them with their owner, whereas a
// number may have been given to somebody else.
#include "tutti/rendezvous/job_secret.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "tutti/base/fd.h"

namespace tutti {
namespace {

constexpr std::time_t kYoung = 60;  // seconds

bool is_old(const struct stat& info) { return std::time(nullptr) - info.st_mtime >= kYoung; }

void sweep_secret(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) (void)::unlink(path.c_str());
}

void sweep_socket(const std::string& path) {
  sockaddr_un address{};
  if (path.size() >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return;
  const int answer = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (answer != 0 && errno == ECONNREFUSED) (void)::unlink(path.c_str());
}

}  // namespace

void sweep_runtime_directory(const std::string& folder) {
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder, error); !error && entry != std::filesystem::end(entry);
       entry.increment(error)) {
    const std::string path = entry->path(), name = entry->path().filename();
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0 || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) continue;
    if (S_ISSOCK(info.st_mode) && name.ends_with(".sock") && is_old(info)) sweep_socket(path);
    if (!S_ISREG(info.st_mode)) continue;
    const bool half_made = name.find(".secret.") != std::string::npos;
    if (name.ends_with(".secret") || (half_made && is_old(info))) sweep_secret(path);
  }
}

}  // namespace tutti
