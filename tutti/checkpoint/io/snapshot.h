#pragma once
// A copy of tensors in memory whose pages are there already, so that it costs what memcpy costs and no page fault.
#include <cstddef>
#include <span>
#include <vector>

#include "tutti/checkpoint/io/writer.h"

namespace tutti {

// Private memory with all its pages in place. Not thread-safe.
class PrefaultedMemory {
 public:
  PrefaultedMemory() = default;
  ~PrefaultedMemory();
  PrefaultedMemory(const PrefaultedMemory&) = delete;
  // At least so many bytes; what was there is lost if there were fewer. kLimit: there is not so much memory.
  Status reserve(std::size_t bytes);
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// The pages of a mapping, in place and writable; what they hold stays. kLimit: there is not so much memory.
Status populate(std::byte* data, std::size_t size);

// The rows of a box, packed one after another; `into` has room for all of them. Errors are of a source of rows.
Status copy_box(const StateBox& saved, std::byte* into);

// The boxes chosen, packed one after another into memory that grows as needed; the boxes that are returned have the
// same keys and places, and their data there. Errors: of a source of rows, or no memory.
std::size_t snapshot_bytes(std::span<const StateBox> boxes, std::span<const std::size_t> chosen);
Result<std::vector<StateBox>> take_snapshot(std::span<const StateBox> boxes, std::span<const std::size_t> chosen,
                                            PrefaultedMemory& memory);

}  // namespace tutti
