#pragma once
// Who goes on with the job's store where it has a successor and one of the two serving it is lost: the voices of the
// nodes. Pure: who is lost is not known here. docs/store.md, "Who goes on", has the rules.
//
// Every agent has one voice in each round, and gives it to the primary (when that one asks for it, because its
// successor is silent) or to the successor (when the agent itself has lost the primary): whichever comes first. Of N
// nodes the primary goes on with N/2 of the voices, the successor with more than N/2. So never both do: they would need
// more than N voices.
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "tutti/base/mutex.h"

namespace tutti {

// Threads: any.
class Vote {
 public:
  // Whether this agent's voice in the round is `candidate`'s, given now or before. There is none in earlier rounds any
  // more.
  bool give(std::int32_t round, std::uint64_t candidate);

 private:
  Mutex mutex_;
  std::int32_t round_ TUTTI_GUARDED_BY(mutex_) = -1;
  std::uint64_t candidate_ TUTTI_GUARDED_BY(mutex_) = 0;
};

// Gives the voice of this agent in that round to one candidate; false: another has it.
using Voter = std::function<bool(std::int32_t round)>;

// Who has a voice: the agents of a round that both stores know of.
struct Electorate {
  std::int32_t round = -1;
  std::vector<std::uint64_t> members;

  std::size_t count(const std::set<std::uint64_t>& voices) const;  // of members
  bool enough_for_primary(std::size_t voices) const { return 2 * voices >= members.size(); }
  bool enough_for_successor(std::size_t voices) const { return 2 * voices > members.size(); }
};

}  // namespace tutti
