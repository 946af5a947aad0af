#pragma once
// Division into equal parts, and the errors for what cannot be divided. Group{} stands for one process that has
// everything: all of parallel/tensor accepts it.
#include <cstdint>
#include <string>

#include "tutti/comm/group.h"

namespace tutti {

inline int ranks_of(const Group& group) { return group ? group.size() : 1; }
inline int rank_in(const Group& group) { return group ? group.rank() : 0; }

// whole / ranks. Throws Exception where it does not divide: "PROJ: 10 output features cannot be divided equally among 4
// ranks (hint: 8 or 12 can)".
std::int64_t equal_part(std::int64_t whole, int ranks, const std::string& who, const std::string& what);

// The query heads and the key-value heads (query groups) of one rank. Each key-value head serves heads / groups query
// heads, which have to be on its rank.
struct HeadShare {
  std::int64_t heads = 0, groups = 0;
};
// Throws: `groups` does not divide `heads`, or `ranks` not both.
HeadShare head_share(std::int64_t heads, std::int64_t groups, int ranks);

}  // namespace tutti
