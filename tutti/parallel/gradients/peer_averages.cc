// A tile of 8 KiB is averaged into the first-level cache and looked at there, which is a hundredth of the time that it
// takes to come from memory; then it is written over what all ranks gave, whose lines are in the cache as well. So
// where one is not finite, what the ranks gave is still there to be looked into.
#include "tutti/parallel/gradients/peer_averages.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tutti/base/mutex.h"
#include "tutti/comm/kernels/finite.h"
#include "tutti/comm/kernels/reduce.h"

namespace tutti {
namespace {

constexpr std::size_t kPeerTileBytes = 8 << 10;
constexpr std::int64_t kGrain = 16;  // tiles that a thread takes at least

}  // namespace

OwnPart own_part(const Group& group, DType dtype, std::size_t count) {
  const std::size_t line = 64 / size_of(dtype), ranks = std::size_t(group.size());
  const auto cut = [&](std::size_t rank) { return rank == ranks ? count : count * rank / ranks / line * line; };
  return {cut(std::size_t(group.rank())), cut(std::size_t(group.rank()) + 1)};
}

void average_part(const Group& group, DType dtype, std::size_t count, std::span<std::byte* const> places,
                  const std::function<void(const NonFiniteTile&)>& tell) {
  const std::size_t size = size_of(dtype), tile = kPeerTileBytes / size;
  const OwnPart mine = own_part(group, dtype, count);
  Mutex telling;  // one call of tell() at a time
  at::parallel_for(
      0, std::int64_t((mine.end - mine.begin + tile - 1) / tile), kGrain, [&](std::int64_t first, std::int64_t last) {
        alignas(64) std::byte average[kPeerTileBytes];
        void* const out[] = {average};
        std::vector<const void*> given(places.size());
        for (std::int64_t i = first; i < last; ++i) {
          const std::size_t begin = mine.begin + std::size_t(i) * tile, elements = std::min(tile, mine.end - begin);
          for (std::size_t r = 0; r < places.size(); ++r) given[r] = places[r] + begin * size;
          reduce_many(dtype, ReduceOp::kAvg, given, out, elements, group.size());
          if (!all_finite(dtype, average, elements)) {
            const MutexLock lock(telling);
            tell({.begin = begin, .count = elements, .average = average, .given = given});
          }
          for (auto* const place : places) std::memcpy(place + begin * size, average, elements * size);
        }
      });
}

}  // namespace tutti
