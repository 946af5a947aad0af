#pragma once
// The heap memory of one group on one host: its control block, staging memory, rings. A member that leaves cannot free
// its part, since the others may still read it: the memory is freed when all members have left. If a member died, it is
// leaked on purpose: nobody knows what that member still had in use.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/mutex.h"
#include "tutti/comm/heap.h"
#include "tutti/comm/shared_memory/control.h"

namespace tutti::comm {

// Where a block of `bytes` begins, from the text of the rank that made it, in an arena that reserves `reserved` bytes;
// none if that cannot be.
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

// The memory that groups which the rank has left still hold. Any thread.
class LeftGroups {
 public:
  void add(GroupMemory memory);
  // Frees what no member reads any more. Before a new group allocates.
  void collect(Heap& heap);

 private:
  struct Left {
    GroupMemory memory;
    bool returned = false;  // the blocks; the control block may have to wait
  };
  Mutex mutex_;
  std::vector<Left> left_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::comm
