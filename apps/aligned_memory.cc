// A trainer's posix_memalign(), in place of glibc's: a large block begins at a rounder address than is asked for.
//
// oneDNN packs the matrices of a product into a buffer of some MiB, which it gets from posix_memalign() with an
// alignment of 128, and frees after the product. glibc before 2.38 cuts off the bytes before an aligned block as a
// block of their own. If they are few, that block goes to a cache of small ones when the buffer is freed, and what is
// left is too short for the next buffer: the heap grows by another one (glibc bug 14581). Trainers keep freed memory
// (launch/tuning.h), so pretrain_gpt had up to 90 MiB of such holes. More bytes are joined to the freed buffer again.
//
// Every tensor of the CPU comes from here, too. The rounder the address, the larger the hole between two tensors that
// stay. On huge pages such holes are resident. So the address is no rounder than is needed: a block costs at most 1/64
// more.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>

#include "tutti/base/sanitizers.h"

#if defined(__GLIBC__) && !TUTTI_ASAN && !TUTTI_TSAN  // they have a posix_memalign of their own
namespace {

constexpr std::size_t kLarge = std::size_t(1) << 20, kRound = std::size_t(16) << 10;

}  // namespace

extern "C" int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  if (alignment % sizeof(void*) != 0 || !std::has_single_bit(alignment)) return EINVAL;
  void* const block = std::aligned_alloc(bytes < kLarge ? alignment : std::max(alignment, kRound), bytes);
  if (!block) return ENOMEM;
  *memory = block;
  return 0;
}
#endif
