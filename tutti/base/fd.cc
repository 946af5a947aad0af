#include "tutti/base/fd.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace tutti {

void Fd::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Status set_nonblocking(int fd, bool on) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) < 0)
    return system_error(errno, "cannot change the blocking mode of a descriptor");
  return {};
}

Result<Fd> make_eventfd() {
  Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd)
    return system_error(errno, "cannot make an eventfd",
                        errno == EMFILE ? "raise the limit of open files (ulimit -n)" : "");
  return fd;
}

Mapping::~Mapping() {
  if (base_) ::munmap(base_, size_);
}

}  // namespace tutti
