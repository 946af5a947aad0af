#include "tutti/checkpoint/memory/neighbours.h"

#include <algorithm>

namespace tutti {
namespace {

// The keeper that follows; -1: none.
int follower(int keeper, const std::vector<const RankPlace*>& keepers) {
  const int count = int(keepers.size());
  for (const bool elsewhere : {true, false})
    for (int steps = 1; steps < count; ++steps) {
      const int next = (keeper + steps) % count;
      if (!elsewhere || keepers[std::size_t(next)]->machine != keepers[std::size_t(keeper)]->machine) return next;
    }
  return -1;
}

}  // namespace

int CopyNeighbours::local_rank(int rank) const {
  const auto& mates = ranks_of[std::size_t(keeper_of[std::size_t(rank)])];
  return int(std::find(mates.begin(), mates.end(), rank) - mates.begin());
}

bool CopyNeighbours::leads(int rank) const { return local_rank(rank) == 0; }

std::vector<int> CopyNeighbours::guests_of(int rank) const {
  std::vector<int> guests;
  for (std::size_t other = 0; other < receiver_of.size(); ++other)
    if (receiver_of[other] == rank) guests.push_back(int(other));
  return guests;
}

CopyNeighbours neighbours_of(const std::vector<RankPlace>& places) {
  CopyNeighbours made;
  std::vector<const RankPlace*> keepers;
  for (const RankPlace& place : places) {
    const auto known =
        std::find_if(keepers.begin(), keepers.end(), [&](const RankPlace* one) { return one->keeper == place.keeper; });
    const auto number = std::size_t(known - keepers.begin());
    if (known == keepers.end()) {
      keepers.push_back(&place);
      made.ranks_of.emplace_back();
    }
    made.ranks_of[number].push_back(int(made.keeper_of.size()));
    made.keeper_of.push_back(int(number));
  }
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const int next = follower(made.keeper_of[rank], keepers);
    const auto place = std::size_t(made.local_rank(int(rank)));
    made.receiver_of.push_back(
        next < 0 ? -1 : made.ranks_of[std::size_t(next)][place % made.ranks_of[std::size_t(next)].size()]);
  }
  return made;
}

}  // namespace tutti
