// What is looked up at random misses the TLB with nearly every access where pages are small. A mapping is given
// huge pages only where it covers them whole, so a little more is mapped, and the ends are given back.
#include "tutti/base/huge_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

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
  ::madvise(aligned, size, MADV_HUGEPAGE);  // not everywhere, and nothing depends on it but speed
  return Mapping(aligned, size);
}

}  // namespace tutti
