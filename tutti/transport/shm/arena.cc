// Order matters when growing: the size first (ftruncate), huge pages asked for before the first touch, then the pages
// are populated by MADV_POPULATE_WRITE, which reports a lack of memory as an error where a plain touch would be a
// SIGBUS. On kernels before 5.14 fallocate() gives the same guarantee, and the first touch comes later.
#include "tutti/transport/shm/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "tutti/base/text.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tutti {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t(2) << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Result<Arena> Arena::map(Fd fd, std::size_t reserve_bytes) {
  const std::size_t bytes = round_up(reserve_bytes, kHugePage);
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  if (base == MAP_FAILED)
    return system_error(errno, "cannot reserve " + bytes_text(bytes) + " of address space for shared memory",
                        "a limit on virtual memory (ulimit -v)? TUTTI_HEAP_LIMIT=4G reserves less");
  Arena arena;
  arena.mapping_ = Mapping(base, bytes);
  arena.fd_ = std::move(fd);
  (void)::madvise(base, bytes, MADV_DONTFORK);
  (void)::madvise(base, bytes, MADV_DONTDUMP);
  (void)::madvise(base, bytes, MADV_HUGEPAGE);  // only where the system gives huge pages to shared memory
  return arena;
}

Result<Arena> Arena::create(std::size_t reserve_bytes) {
  Fd fd(::memfd_create("tutti-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return system_error(errno, "cannot create shared memory (memfd_create)");
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) return system_error(errno, "cannot seal shared memory");
  return map(std::move(fd), reserve_bytes);
}

Result<std::size_t> Arena::grow(std::size_t bytes) {
  bytes = round_up(bytes, bytes >= kHugePage ? kHugePage : kPage);
  const std::size_t begin = size_;
  const auto no_room = [&](int errno_value) {
    return Error{.code = Code::kLimit,
                 .detail = "cannot grow the shared heap by " + bytes_text(bytes) + " beyond " + bytes_text(begin),
                 .hint = "the machine or its container has no more memory",
                 .errno_value = errno_value};
  };
  if (bytes > reserved() - begin) {
    Error error = no_room(0);
    error.hint = "the limit is " + bytes_text(reserved()) + "; TUTTI_HEAP_LIMIT=64G sets another";
    return error;
  }
  if (::ftruncate(fd_.get(), off_t(begin + bytes)) != 0) return no_room(errno);
  if (::madvise(base() + begin, bytes, MADV_POPULATE_WRITE) != 0) {
    if (errno != EINVAL) return no_room(errno);
    if (const int failed = ::posix_fallocate(fd_.get(), off_t(begin), off_t(bytes)); failed != 0)
      return no_room(failed);
  }
  size_ = begin + bytes;
  return begin;
}

}  // namespace tutti
