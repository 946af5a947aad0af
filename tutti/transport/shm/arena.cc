// Order matters when growing: the size first (ftruncate), then huge pages where they can be had, then all pages are
// populated by MADV_POPULATE_WRITE, which reports a lack of memory as an error where a plain touch would be a SIGBUS.
// On kernels before 5.14 fallocate() gives the same guarantee, and the first touch comes later.
//
// Most systems give shared memory no huge pages by themselves (shmem_enabled is "never"), but MADV_COLLAPSE (Linux 6.1)
// makes one of any 2 MiB in which a page exists: so one page is touched, and the other 511 are zeroed in one go, which
// takes a fifth of the time of 512 faults, here and again in each peer that maps them.
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
#include <cstdint>

#include "tutti/base/file.h"
#include "tutti/base/text.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace tutti::transport {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t(2) << 20;
constexpr std::size_t kMostTogether = std::size_t(32) << 40;  // leaves most of the address space to the program

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Makes huge pages of what lies whole between the two, as far as the system has any: where memory is in pieces the
// kernel would search long for each.
void use_huge_pages(std::byte* base, std::size_t begin, std::size_t end) {
  constexpr int kMostFailures = 3;
  int failures = 0;
  for (std::size_t at = round_up(begin, kHugePage); at + kHugePage <= end; at += kHugePage) {
    if (::madvise(base + at, kPage, MADV_POPULATE_WRITE) != 0) return;
    if (::madvise(base + at, kHugePage, MADV_COLLAPSE) != 0 && (errno == EINVAL || ++failures == kMostFailures)) return;
  }
}

}  // namespace

Result<Arena> Arena::map(Fd fd, std::size_t reserve_bytes, std::size_t least) {
  struct stat info {};
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  const bool is_sealed = seals >= 0 && (seals & F_SEAL_SHRINK) && ::fstat(fd.get(), &info) == 0;
  if (!is_sealed || info.st_size < off_t(least) || reserve_bytes < std::size_t(info.st_size) ||
      reserve_bytes > kMostTogether)
    return Error{.code = Code::kMismatch,
                 .detail = "it sent a file that is not an arena: " + bytes_text(reserve_bytes) + " of address space",
                 .hint = "do all ranks run the same version of tutti?"};
  return reserve(std::move(fd), reserve_bytes);
}

Result<Arena> Arena::reserve(Fd fd, std::size_t reserve_bytes) {
  const std::size_t bytes = round_up(reserve_bytes, kHugePage);
  // A huge page of the file needs a place that is aligned like one: found in a range that is larger by one.
  void* const range = ::mmap(nullptr, bytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  void* base = MAP_FAILED;
  if (range != MAP_FAILED) {
    std::byte* const first = static_cast<std::byte*>(range);
    const std::size_t before = -reinterpret_cast<std::uintptr_t>(first) % kHugePage;
    base = ::mmap(first + before, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd.get(), 0);
    const int trouble = errno;
    if (base == MAP_FAILED) {
      ::munmap(range, bytes + kHugePage);
    } else {
      if (before > 0) ::munmap(first, before);
      ::munmap(first + before + bytes, kHugePage - before);
    }
    errno = trouble;
  }
  if (base == MAP_FAILED)
    return system_error(errno, "cannot reserve " + bytes_text(bytes) + " of address space for shared memory",
                        "a limit on virtual memory (ulimit -v)? TUTTI_HEAP_LIMIT=4G reserves less");
  Arena arena;
  arena.mapping_ = Mapping(base, bytes);
  arena.fd_ = std::move(fd);
  (void)::madvise(base, bytes, MADV_DONTFORK);
  (void)::madvise(base, bytes, MADV_DONTDUMP);
  (void)::madvise(base, bytes, MADV_HUGEPAGE);  // where the system gives huge pages to shared memory by itself
  return arena;
}

Result<Arena> Arena::create(std::size_t reserve_bytes) {
  Fd fd(::memfd_create("tutti-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return system_error(errno, "cannot create shared memory (memfd_create)");
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) return system_error(errno, "cannot seal shared memory");
  return reserve(std::move(fd), reserve_bytes);
}

Result<std::size_t> Arena::grow(std::size_t bytes) {
  const std::size_t begin = size_;
  bytes = round_up(bytes, kPage);
  // A large piece ends where a huge page does, so that the next begins there.
  if (bytes >= kHugePage) bytes = std::max(bytes, std::min(round_up(begin + bytes, kHugePage), reserved()) - begin);
  const auto no_room = [&](int errno_value) {
    return Error{.code = Code::kLimit,
                 .detail = "cannot grow the shared heap by " + bytes_text(bytes) + " beyond " + bytes_text(begin),
                 .hint = "the machine or its container has no more memory",
                 .errno_value = errno_value};
  };
  if (bytes > reserved() - begin) {
    Error error = no_room(0);
    error.hint = "the limit is " + bytes_text(reserved()) + ", in steps of " + bytes_text(kHugePage) +
                 "; TUTTI_HEAP_LIMIT=64G sets another";
    return error;
  }
  if (!may_grow_to(begin + bytes)) {
    Error error = no_room(EFBIG);
    error.hint = "shared memory counts as a file for the limit of file sizes: ulimit -f unlimited";
    return error;
  }
  if (begin + bytes > file_size_) {
    if (::ftruncate(fd_.get(), off_t(begin + bytes)) != 0) return no_room(errno);
    file_size_ = begin + bytes;
  }
  use_huge_pages(base(), begin, begin + bytes);
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

}  // namespace tutti::transport
