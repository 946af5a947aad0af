#pragma once
// How the elements of a call are divided among the ranks of the group, and how many of them one rank reads and writes.
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>

#include "tutti/comm/request.h"

namespace tutti {

// The parts of all ranks in a buffer, one after another: `count` elements each, or by splits. Borrows the splits.
class Parts {
 public:
  Parts(std::size_t count, std::span<const std::size_t> splits) : count_(count), splits_(splits) {}
  std::size_t count(int rank) const { return splits_.empty() ? count_ : splits_[std::size_t(rank)]; }
  std::size_t begin(int rank) const {
    if (splits_.empty()) return std::size_t(rank) * count_;
    return std::accumulate(splits_.begin(), splits_.begin() + rank, std::size_t(0));
  }

 private:
  std::size_t count_;
  std::span<const std::size_t> splits_;
};

// A number that two lists of splits share only if they are equal, as good as surely.
std::uint64_t digest_of(std::span<const std::size_t> splits);

// Whether the parts come from splits: the _v verbs, and an all_to_all that was given some.
inline bool has_splits(const Request& r) { return is_uneven(r.kind) || !r.in_splits.empty(); }

// Elements that a rank reads at `in` and writes at `out` (a broadcast has its one buffer at `out`).
struct Extent {
  std::size_t in = 0, out = 0;
};
// None where the number of elements does not fit the machine.
std::optional<Extent> extent_of(const Request& request, int rank, int size);

// Of a valid request, in bytes: where `in` is when the call is in place and one buffer is the rank's own part of the
// other.
std::size_t own_part_offset(const Request& request, int rank);

}  // namespace tutti
