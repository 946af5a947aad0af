// With small pages, random access misses the TLB almost every time. A mapping gets huge pages only for aligned,
// complete ranges. So a little more is mapped, and the ends are unmapped again.
#include "tutti/base/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <random>

#include "tutti/base/env.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"

namespace tutti {

namespace {

constexpr std::size_t kHugePage = std::size_t(2) << 20;

}  // namespace

Result<Mapping> huge_memory(std::size_t bytes, const char* what, const char* hint) {
  const std::size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage, with_room = size + kHugePage;
  void* const base =
      ::mmap(nullptr, with_room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return Error{.code = Code::kLimit,
                 .detail = detail::words("cannot map ", bytes_text(bytes), " for ", what),
                 .hint = hint,
                 .errno_value = errno};
  const auto begin = reinterpret_cast<std::uintptr_t>(base);
  const std::size_t head = (kHugePage - begin % kHugePage) % kHugePage;
  if (head > 0) ::munmap(base, head);
  auto* const aligned = static_cast<std::byte*>(base) + head;
  if (const std::size_t tail = with_room - head - size; tail > 0) ::munmap(aligned + size, tail);
  ::madvise(aligned, size, MADV_HUGEPAGE);  // not supported everywhere; only the speed depends on it
  return Mapping(aligned, size);
}

namespace {

// At the start of the memory. A new layout of the memory needs a new magic number.
struct Label {
  static constexpr std::uint64_t kMagic = 0x316b656570747475;
  std::uint64_t magic = kMagic;
  std::array<std::uint64_t, 2> keeper = {};
};

}  // namespace

Result<Fd> KeptMemory::create() {
  if (!may_grow_to(KeptMemory::kBytes))
    return Error{.code = Code::kLimit,
                 .detail = "memory that outlives the ranks cannot be had where the size of files is limited",
                 .hint = "ulimit -f unlimited"};
  std::random_device random;
  Label label;
  for (std::uint64_t& word : label.keeper) word = std::uint64_t(random()) << 32 | random();
  Fd fd(::memfd_create("tutti-kept", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ::ftruncate(fd.get(), off_t(kBytes)) != 0 || ::pwrite(fd.get(), &label, sizeof label, 0) != sizeof label ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return system_error(errno, "could not make memory that outlives the ranks");
  return fd;
}

Result<KeptMemory> KeptMemory::open(int fd) {
  Label label{.magic = 0};
  struct stat facts {};
  if (::fstat(fd, &facts) != 0 || facts.st_size != off_t(kBytes) ||
      ::pread(fd, &label, sizeof label, 0) != sizeof label || label.magic != Label::kMagic)
    return Error{.code = Code::kMismatch,
                 .detail = "descriptor " + std::to_string(fd) + " is no kept memory of this version of tutti"};
  Fd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own) return system_error(errno, "could not keep the descriptor of the kept memory");
  char keeper[33];
  std::snprintf(keeper, sizeof keeper, "%016llx%016llx", static_cast<unsigned long long>(label.keeper[0]),
                static_cast<unsigned long long>(label.keeper[1]));
  return KeptMemory(std::move(own), keeper);
}

Result<KeptMemory> KeptMemory::open_given() {
  const auto text = env(kVariable);
  if (!text) return Error{.code = Code::kNotFound, .detail = std::string(kVariable) + " is not set"};
  const auto fd = parse_int(*text);
  if (!fd || *fd < 0 || *fd > INT32_MAX)
    return Error{.code = Code::kMismatch,
                 .detail = std::string(kVariable) + " is \"" + *text + "\", which is no descriptor"};
  auto memory = open(int(*fd));
  if (memory.ok()) (void)::fcntl(int(*fd), F_SETFD, FD_CLOEXEC);  // do not pass it on to child processes
  return memory;
}

}  // namespace tutti
