#include "tutti/parallel/gradients/peer_averages.h"

#include <cstring>

namespace tutti {

OwnPart own_part(const Group& group, std::size_t element_size, std::size_t count) {
  const std::size_t line = 64 / element_size, ranks = std::size_t(group.size());
  const auto cut = [&](std::size_t rank) { return rank == ranks ? count : count * rank / ranks / line * line; };
  return {cut(std::size_t(group.rank())), cut(std::size_t(group.rank()) + 1)};
}

void average_with_peers(const Group& group, DType dtype, std::size_t count, std::span<std::byte* const> places,
                        const std::function<void(const AverageTile&)>& report) {
  const OwnPart mine = own_part(group, size_of(dtype), count);
  TileCheck check(report != nullptr, report);
  average_in_tiles(
      {dtype, places, std::int64_t(mine.begin), std::int64_t(mine.end - mine.begin)}, [&](const AverageTile& tile) {
        check.passes(tile);
        for (auto* const place : places)
          std::memcpy(place + tile.begin * std::int64_t(size_of(dtype)), tile.average, std::size_t(tile.bytes()));
      });
}

}  // namespace tutti
