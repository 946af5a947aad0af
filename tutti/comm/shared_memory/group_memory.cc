// The control block has two counts: of the members that have left, so that blocks may be freed, and of those that have
// seen that, so that the block with the counts may be freed itself.
#include "tutti/comm/shared_memory/group_memory.h"

#include <utility>

#include "tutti/base/text.h"

namespace tutti::comm {

std::optional<std::size_t> parse_block_place(const std::string& text, std::size_t bytes, std::size_t reserved) {
  const auto place = parse_int(text);
  if (!place || *place < 0 || *place % std::int64_t(Heap::kAlignment) != 0 || bytes > reserved ||
      std::size_t(*place) > reserved - bytes)
    return {};
  return std::size_t(*place);
}

Result<std::uint64_t> GroupMemory::allocate(Heap& heap, std::size_t bytes) {
  const std::size_t offset = TUTTI_TRY(heap.allocate(bytes));
  blocks.push_back({offset, bytes});
  return std::uint64_t(offset);
}

void LeftGroups::add(GroupMemory memory) {
  if (memory.members < 2) return;
  memory.control.left().fetch_add(1, std::memory_order_acq_rel);
  MutexLock lock(mutex_);
  left_.push_back({std::move(memory)});
}

void LeftGroups::collect(Heap& heap) {
  MutexLock lock(mutex_);
  std::erase_if(left_, [&](Left& group) {
    GroupMemory& memory = group.memory;
    const std::uint32_t all = std::uint32_t(memory.members);
    if (!group.returned) {
      if (memory.control.left().load(std::memory_order_acquire) != all) return false;
      for (const auto& block : memory.blocks) heap.release(block.offset, block.bytes);
      group.returned = true;
      memory.control.returned().fetch_add(1, std::memory_order_acq_rel);
    }
    if (memory.control_block.empty()) return true;
    if (memory.control.returned().load(std::memory_order_acquire) != all) return false;
    for (const auto& block : memory.control_block) heap.release(block.offset, block.bytes);
    return true;
  });
}

}  // namespace tutti::comm
