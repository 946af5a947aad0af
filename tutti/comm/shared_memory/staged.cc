#include "tutti/comm/shared_memory/staged.h"

#include <algorithm>
#include <cstring>

#include "tutti/comm/kernels/reduce.h"
#include "tutti/comm/shared_memory/small.h"

namespace tutti::comm {

StagedTransfer::StagedTransfer(DirectChannel& channel, const Request& request, std::uint64_t largest_split)
    : request_(request),
      scratch_(channel.scratch()),
      in_parts_(request.count, request.in_splits),
      out_parts_(request.count, request.out_splits),
      rank_(channel.rank()),
      size_(channel.size()),
      element_(size_of(request.dtype)) {
  // If the input has n parts, a piece holds a stretch of each.
  per_piece_ = kPieceBytes / element_ / (gives_parts(request.kind) ? std::size_t(size_) : 1);
  const std::size_t total = has_splits(request) ? largest_split : request.count;
  pieces_ = (total + per_piece_ - 1) / per_piece_;
}

StagedTransfer::Span StagedTransfer::piece(std::size_t k, std::size_t total) const {
  const std::size_t begin = std::min(total, k * per_piece_);
  return {begin, std::min(total - begin, per_piece_)};
}

// Cuts at cache lines, so that no two ranks write the same line.
StagedTransfer::Span StagedTransfer::slice(Span whole, int rank) const {
  const auto [begin, end] = own_slice(whole.count, element_, rank, size_);
  return {begin, end - begin};  // from the start of the piece
}

std::size_t StagedTransfer::part_count(int from, int to) const { return stretch_of(request_, rank_, from, to).count; }

void StagedTransfer::reduce(std::span<const void* const> in, std::span<void* const> out, std::size_t count) const {
  reduce_many(request_.dtype, request_.op, in, out, count, request_.op == ReduceOp::kAvg ? int(in.size()) : 1,
              scratch_.factors.data());
}

// In a reduction of whole vectors each rank adds a slice of every piece.
bool StagedTransfer::adds_slices() const { return is_reduction(request_.kind) && !gives_parts(request_.kind); }

void StagedTransfer::copy_in(std::size_t k) {
  if (!gives(request_, rank_)) return;
  if (adds_slices() && size_ == 2 &&
      !is_scan(request_.kind)) {  // each rank reads its own half in place, so only the other half is copied
    const Span p = piece(k, request_.count), half = slice(p, 1 - rank_);
    std::memcpy(slot(rank_, k) + half.begin * element_, in(p.begin + half.begin), half.count * element_);
  } else if (gives_parts(request_.kind)) {
    // Copies this rank's own part too, because an in-place all_to_all overwrites it before it is read.
    for (int to = 0; to < size_; ++to) {
      const Span p = piece(k, part_count(rank_, to));
      if (p.count > 0) std::memcpy(sub_slot(rank_, k, to), in(in_parts_.begin(to) + p.begin), p.count * element_);
    }
  } else {
    const Span p = piece(k, part_count(rank_, rank_));
    if (p.count > 0) std::memcpy(slot(rank_, k), in(p.begin), p.count * element_);
  }
}

void StagedTransfer::combine(std::size_t k) {
  auto& ins = scratch_.ins;
  if (adds_slices()) {
    const Span p = piece(k, request_.count);
    const Span mine = slice(p, rank_);
    const std::size_t at = mine.begin * element_;
    auto& outs = scratch_.outs;
    std::size_t last = 0;  // index into outs
    for (int r = 0; r < size_; ++r) ins[r] = slot(r, k) + at;
    if (is_scan(request_.kind)) {  // from the last rank down: a rank's output overwrites its input
      for (int r = size_ - 1; r >= 0 && gets(request_, r); --r) {
        outs[0] = slot(r, k) + at;
        reduce(std::span(ins).first(std::size_t(summands(request_.kind, r, size_))), std::span(outs).first(1),
               mine.count);
      }
      return;
    }
    if (has_root(request_.kind)) {
      // Into the root's slot. If the root itself adds, directly into its output.
      outs[0] = rank_ == request_.root ? static_cast<void*>(out(p.begin + mine.begin)) : slot(request_.root, k) + at;
    } else {
      outs[0] = out(p.begin + mine.begin);
      for (int r = 0; r < size_; ++r)
        if (r != rank_) outs[++last] = slot(r, k) + at;
    }
    if (size_ == 2) ins[rank_] = in(p.begin + mine.begin);
    reduce(ins, std::span(outs).first(last + 1), mine.count);
  } else if (is_reduction(request_.kind)) {
    const Span p = piece(k, part_count(rank_, rank_));
    for (int r = 0; r < size_; ++r) ins[r] = sub_slot(r, k, rank_);
    void* const outs[] = {out(p.begin)};
    reduce(ins, outs, p.count);
  } else if (gets(request_, rank_)) {
    for (int r = 0; r < size_; ++r) {
      if (!gives(request_, r) || (r == rank_ && request_.kind == Kind::kBroadcast)) continue;
      const Stretch s = stretch_of(request_, rank_, r, rank_);
      const Span p = piece(k, s.count);
      const std::byte* const from = gives_parts(request_.kind) ? sub_slot(r, k, rank_) : slot(r, k);
      if (p.count > 0) std::memcpy(out(s.out_begin + p.begin), from, p.count * element_);
    }
  }
}

// Copies out the slices that the peers added into this rank's slot.
void StagedTransfer::copy_out(std::size_t k) {
  if (!adds_slices() || !gets(request_, rank_)) return;
  const Span p = piece(k, request_.count);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ && !is_scan(request_.kind)) continue;
    const Span theirs = slice(p, r);
    std::memcpy(out(p.begin + theirs.begin), slot(rank_, k) + theirs.begin * element_, theirs.count * element_);
  }
}

}  // namespace tutti::comm
