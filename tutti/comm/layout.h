#pragma once
// Where the elements of a call are: how its buffers are divided among the ranks of the group, and which stretch of one
// rank's input goes into which stretch of another rank's output.
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
// Of a verb whose splits all ranks give alike (has_common_splits): those.
inline std::span<const std::size_t> common_splits(const Request& r) {
  return gives_parts(r.kind) ? r.in_splits : r.out_splits;
}

// Whether the rank reads its input for the others, and whether it writes an output.
inline bool gives(const Request& r, int rank) {
  return verb(r.kind).gives == Verb::Ranks::kAll || (verb(r.kind).gives == Verb::Ranks::kRoot && rank == r.root);
}
inline bool gets(const Request& r, int rank) {
  if (verb(r.kind).combine == Verb::Combine::kReduceBefore && rank == 0) return false;  // there is nobody before
  return verb(r.kind).gets == Verb::Ranks::kAll || (verb(r.kind).gets == Verb::Ranks::kRoot && rank == r.root);
}
// The buffer that a rank gives from: the one buffer of a broadcast is `out`.
inline const void* given(const Request& r) { return verb(r.kind).in == Verb::Buffer::kNone ? r.out : r.in; }

// What moves between two ranks, in elements: from `in_begin` in the giver's buffer to `out_begin` in the getter's.
struct Stretch {
  std::size_t in_begin = 0, out_begin = 0, count = 0;
};
// `me` is one of the two. It knows both places from its own splits, except that those of a getter in an all_to_all or a
// scatter_v do not say where its part is in the giver's buffer.
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

// Elements that a rank reads at `in` and writes at `out` (a broadcast has its one buffer at `out`).
struct Extent {
  std::size_t in = 0, out = 0;
};
inline Extent elements_of(const Request& r, int rank, int size) {
  // A vector: `count` elements, or this rank's part by the splits that all give.
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
// The same; none where the number of elements does not fit the machine.
std::optional<Extent> extent_of(const Request& request, int rank, int size);

// Of a valid request, in bytes: where `in` is when the call is in place and one buffer is the rank's own part of the
// other.
std::size_t own_part_offset(const Request& request, int rank);

}  // namespace tutti
