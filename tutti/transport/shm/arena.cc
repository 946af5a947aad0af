// Order matters when growing: the size first (ftruncate), huge pages asked for before the first touch, then the pages
// are populated by MADV_POPULATE_WRITE, which reports a lack of memory as an error where a plain touch would be a
// SIGBUS. On kernels before 5.14 fallocate() gives the same guarantee, and the first touch comes later.
//
// Where that fails, the file keeps its new size, for it is sealed against shrinking, but gives back the pages that it
// got so far: a hole may be punched into a sealed file. The next, smaller growth finds the file large enough.
#include "tutti/transport/shm/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tutti/base/text.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tutti {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t(2) << 20;
constexpr std::size_t kMostTogether = std::size_t(32) << 40;  // leaves most of the address space to the program

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Result<Arena> Arena::map(Fd fd, std::size_t reserve_bytes, std::size_t least) {
  struct stat info {};
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  const bool is_sealed = seals >= 0 && (seals & F_SEAL_SHRINK) && ::fstat(fd.get(), &info) == 0;
  if (!is_sealed || info.st_size < off_t(least) || reserve_bytes < std::size_t(info.st_size) ||
      reserve_bytes > kMostTogether)
    return Error{.code = Code::kMismatch,
                 .detail = "it sent something that is no arena: " + bytes_text(reserve_bytes) + " of address space",
                 .hint = "do all ranks run the same version of tutti?"};
  return reserve(std::move(fd), reserve_bytes);
}

Result<Arena> Arena::reserve(Fd fd, std::size_t reserve_bytes) {
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
  return reserve(std::move(fd), reserve_bytes);
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
  if (begin + bytes > file_size_) {
    if (::ftruncate(fd_.get(), off_t(begin + bytes)) != 0) return no_room(errno);
    file_size_ = begin + bytes;
  }
  int trouble = ::madvise(base() + begin, bytes, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
  if (trouble == EINVAL) trouble = ::posix_fallocate(fd_.get(), off_t(begin), off_t(bytes));
  if (trouble != 0) {
    (void)::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(begin), off_t(bytes));
    return no_room(trouble);
  }
  size_ = begin + bytes;
  return begin;
}

std::size_t default_reserve(std::size_t machine_memory, int local_ranks) {
  return std::min(machine_memory, kMostTogether / std::size_t(std::max(1, local_ranks)));
}

}  // namespace tutti
