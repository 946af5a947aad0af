#pragma once
// Which rank holds a copy for which: a pure function of where they are.
#include <string>
#include <vector>

namespace tutti {

// Where a rank is: in which kept memory it writes (that of its node's agent), and on which machine.
struct RankPlace {
  std::string keeper, machine;
};

struct CopyNeighbours {
  std::vector<int> keeper_of;              // by rank; keepers are numbered by their lowest rank
  std::vector<std::vector<int>> ranks_of;  // by keeper, rising
  std::vector<int> receiver_of;            // by rank: who holds a copy for it in another keeper's memory; -1: nobody

  int local_rank(int rank) const;              // among those of its keeper
  bool leads(int rank) const;                  // the lowest of its keeper
  std::vector<int> guests_of(int rank) const;  // rising: for whom it holds a copy
};

// Keepers stand in a ring, each followed by the next one on another machine; by the next at all where there is no other
// machine; by nobody where there is one keeper. The ranks of a keeper are dealt out to those of the one that follows.
CopyNeighbours neighbours_of(const std::vector<RankPlace>& places);

}  // namespace tutti
