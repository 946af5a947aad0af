#pragma once
// The layout of a call: how its buffers are divided among the ranks of the group, and which stretch of one rank's input
// is transferred to which stretch of another rank's output.
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>

#include "tutti/comm/request.h"

namespace tutti::comm {

// The parts of all ranks in a buffer, one after another: `count` elements each, or as the splits say. Borrows the
// splits.
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

// A hash of a list of splits. Different lists have different hashes with near certainty.
std::uint64_t digest_of(std::span<const std::size_t> splits);

// Whether splits define the parts: in the _v verbs, and in an all_to_all with splits.
inline bool has_splits(const Request& r) { return is_uneven(r.kind) || !r.in_splits.empty(); }
// The splits of a verb in which all ranks pass the same splits (has_common_splits).
inline std::span<const std::size_t> common_splits(const Request& r) {
  return gives_parts(r.kind) ? r.in_splits : r.out_splits;
}

// Whether the rank contributes an input (gives), and whether it writes an output (gets).
inline bool gives(const Request& r, int rank) {
  return verb(r.kind).gives == Verb::Ranks::kAll || (verb(r.kind).gives == Verb::Ranks::kRoot && rank == r.root);
}
inline bool gets(const Request& r, int rank) {
  if (verb(r.kind).combine == Verb::Combine::kReduceBefore && rank == 0) return false;  // there is no rank before it
  return verb(r.kind).gets == Verb::Ranks::kAll || (verb(r.kind).gets == Verb::Ranks::kRoot && rank == r.root);
}
// The buffer that a rank contributes. For a broadcast it is its only buffer, `out`.
inline const void* given(const Request& r) { return verb(r.kind).in == Verb::Buffer::kNone ? r.out : r.in; }

// The elements transferred between two ranks: from `in_begin` in the sender's buffer to `out_begin` in the receiver's.
struct Stretch {
  std::size_t in_begin = 0, out_begin = 0, count = 0;
};
// `me` must be one of the two ranks. It computes both positions from its own splits, with one exception: the receiver's
// splits in an all_to_all or scatter_v do not determine where its part is in the sender's buffer.
inline Stretch stretch_of(const Request& r, int me, int from, int to) {
  const Parts ins(r.count, r.in_splits), outs(r.count, r.out_splits);
  Stretch s{.count = r.count};
  if (gets_parts(r.kind)) s.out_begin = outs.begin(from), s.count = outs.count(from);
  if (gives_parts(r.kind)) {
    s.in_begin = ins.begin(to);
    if (!gets_parts(r.kind) || from == me) s.count = ins.count(to);
  }
  return s;
}

// Elements that a rank reads at `in` and writes at `out`. (The one buffer of a broadcast is at `out`.)
struct Extent {
  std::size_t in = 0, out = 0;
};
inline Extent elements_of(const Request& r, int rank, int size) {
  // A vector has `count` elements, or those of this rank's part in the common splits.
  const std::size_t vector = has_common_splits(r.kind) ? common_splits(r)[std::size_t(rank)] : r.count;
  const auto elements = [&](Verb::Buffer buffer, std::span<const std::size_t> splits) {
    if (buffer == Verb::Buffer::kNone) return std::size_t(0);
    if (buffer == Verb::Buffer::kVector) return vector;
    return splits.empty() ? r.count * std::size_t(size) : std::reduce(splits.begin(), splits.end());
  };
  Extent extent;
  if (gives(r, rank)) extent.in = elements(verb(r.kind).in, r.in_splits);
  if (gets(r, rank)) extent.out = elements(verb(r.kind).out, r.out_splits);
  return extent;
}
// Like elements_of(), but empty if the number of elements exceeds the address space.
std::optional<Extent> extent_of(const Request& request, int rank, int size);

// The offset of `in` or `out`, in bytes, if the call is in place and one buffer is the rank's own part of the other.
// The request must be valid.
std::size_t own_part_offset(const Request& request, int rank);

}  // namespace tutti::comm
