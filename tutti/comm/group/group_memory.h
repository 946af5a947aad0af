#pragma once
// The heap memory of one group on one host: its control block, staging memory, rings. A member that leaves may not take
// its part along, since the others may still read it: it is given back when all members have left. A group that some
// member died in keeps it: what the dead had read nobody knows.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/mutex.h"
#include "tutti/comm/heap.h"
#include "tutti/comm/shared_memory/control.h"

namespace tutti {

// Where a block of so many bytes begins, as the rank that made it tells the others, in an arena that reserves
// `reserved` bytes; none if that cannot be.
std::optional<std::size_t> parse_block_place(const std::string& text, std::size_t bytes, std::size_t reserved);

// Of one member. Threads: one at a time.
struct GroupMemory {
  struct Block {
    std::size_t offset, bytes;
  };
  GroupControl control;
  int members = 0;                                                // on this host
  std::vector<Block> blocks;                                      // of this rank's heap
  std::vector<Block> control_block;                               // on the rank that made it
  Result<std::uint64_t> allocate(Heap& heap, std::size_t bytes);  // the offset; goes with the group
};

// What the groups that a rank has left hold still. Any thread.
class LeftGroups {
 public:
  void add(GroupMemory memory);
  // Gives back what nobody reads any more. Before a new group asks for memory.
  void collect(Heap& heap);

 private:
  struct Left {
    GroupMemory memory;
    bool returned = false;  // the blocks; the control block may have to wait
  };
  Mutex mutex_;
  std::vector<Left> left_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti
