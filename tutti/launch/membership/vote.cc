// A voice for a newer round makes those of older ones worthless: who has sat down in a round knows that both stores
// have its roster, so nothing is decided by an earlier one any more.
#include "tutti/launch/membership/vote.h"

#include <algorithm>

namespace tutti {

bool Vote::give(std::int32_t round, std::uint64_t candidate) {
  MutexLock lock(mutex_);
  if (round < round_) return false;
  if (round > round_) {
    round_ = round;
    candidate_ = candidate;
  }
  return candidate_ == candidate;
}

std::size_t Electorate::count(const std::set<std::uint64_t>& voices) const {
  return std::size_t(
      std::count_if(members.begin(), members.end(), [&](std::uint64_t id) { return voices.contains(id); }));
}

}  // namespace tutti
