#include "tutti/comm/peer_memory.h"

#include "tutti/comm/group/group_state.h"

namespace tutti {

Result<std::vector<std::byte*>> peer_memory(const Group& group, std::span<const std::span<std::byte>> mine) {
  const std::size_t ranks = std::size_t(group.size()), buffers = mine.size();
  std::vector<std::byte*> memory(buffers * ranks, nullptr);
  if (ranks == 1) {
    for (std::size_t k = 0; k < buffers; ++k) memory[k] = mine[k].data();
    return memory;
  }
  if (!group.state().is_direct() || mine.empty()) return memory;
  struct SharedAddress {
    std::int64_t owner = -1;  // local rank on this host
    std::uint64_t offset = 0, bytes = 0;
  };
  const transport::Host& host = *group.state().process().host;
  std::vector<SharedAddress> places(buffers), all(buffers * ranks);
  for (std::size_t k = 0; k < buffers; ++k) {
    const transport::Host::ArenaAddress place = host.find(mine[k].data(), mine[k].size());
    places[k] = {place.owner, place.offset, mine[k].size()};
  }
  TUTTI_TRY(group.run({.kind = Kind::kAllGather,
                       .dtype = DType::kU8,
                       .in = places.data(),
                       .out = all.data(),
                       .count = buffers * sizeof(SharedAddress)}));
  for (std::size_t k = 0; k < buffers; ++k) {
    bool in_reach = true;
    for (std::size_t r = 0; r < ranks; ++r) {
      const SharedAddress& place = all[r * buffers + k];
      if (place.bytes != mine[k].size())
        return Error{.code = Code::kMismatch,
                     .detail = detail::words("shows ", std::to_string(place.bytes), " bytes as buffer ",
                                             std::to_string(k), ", this rank ", std::to_string(mine[k].size())),
                     .hint = "every rank shows the same buffers in the same order",
                     .group = group.name(),
                     .rank = group.rank(),
                     .peer = int(r)};
      in_reach = in_reach && place.owner >= 0;
    }
    for (std::size_t r = 0; in_reach && r < ranks; ++r) {
      const SharedAddress& place = all[r * buffers + k];
      memory[k * ranks + r] = host.base(int(place.owner)) + place.offset;
    }
  }
  return memory;
}

Result<std::byte*> owners_memory(const Group& group, int owner, std::span<std::byte> mine) {
  if (group.size() == 1) return mine.data();
  if (!group.state().is_direct()) return nullptr;
  struct SharedAddress {
    std::int64_t owner = -1;  // local rank on this host
    std::uint64_t offset = 0;
  } place;
  const transport::Host& host = *group.state().process().host;
  if (group.rank() == owner) {
    const transport::Host::ArenaAddress found = host.find(mine.data(), mine.size());
    place = {found.owner, found.offset};
  }
  TUTTI_TRY(group.run(
      {.kind = Kind::kBroadcast, .dtype = DType::kU8, .root = owner, .out = &place, .count = sizeof(SharedAddress)}));
  return place.owner < 0 ? nullptr : host.base(int(place.owner)) + place.offset;
}

}  // namespace tutti
