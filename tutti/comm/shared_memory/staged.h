#pragma once
// Transfers private buffers through staging memory, in pieces that fit in the L2 cache, with three pieces in flight.
#include <span>

#include "tutti/comm/layout.h"
#include "tutti/comm/shared_memory/channel.h"

namespace tutti::comm {

// The data movement of one operation, piece by piece. In iteration k = 0 .. pieces() + 1 every rank does
//     copy_in(k) · wait for iteration k - 1 of all ranks · combine(k - 1) · post · copy_out(k - 2)
// so the slot of a piece (k mod 3) is overwritten only after all ranks have combined its former content.
class StagedTransfer {
 public:
  // The channel's scratch holds where each rank's three pieces start and, for a premultiplied sum, the factors.
  // `largest_split`: with splits, elements of the largest part of all.
  StagedTransfer(DirectChannel& channel, const Request& request, std::uint64_t largest_split);

  std::size_t pieces() const { return pieces_; }
  void prepare() {  // call before the barrier of this iteration; repeated calls do nothing
    if (!waiting && iteration < pieces_) copy_in(iteration);
    waiting = true;
  }
  void copy_in(std::size_t k);
  void combine(std::size_t k);
  void copy_out(std::size_t k);

  std::size_t iteration = 0;  // of the operation that drives this object
  bool waiting = false;

 private:
  struct Span {
    std::size_t begin, count;  // elements
  };
  Span piece(std::size_t k, std::size_t total) const;  // of a buffer or part of `total` elements
  Span slice(Span whole, int rank) const;              // of a piece: the part that `rank` adds
  std::byte* slot(int rank, std::size_t k) const { return scratch_.slots[rank] + k % kPieces * kPieceBytes; }
  std::byte* sub_slot(int rank, std::size_t k, int part) const {
    return slot(rank, k) + std::size_t(part) * per_piece_ * element_;
  }
  const std::byte* in(std::size_t element) const {
    return static_cast<const std::byte*>(request_.in) + element * element_;
  }
  std::byte* out(std::size_t element) const { return static_cast<std::byte*>(request_.out) + element * element_; }
  // The elements that `from` has for `to`. One of the two is this rank.
  std::size_t part_count(int from, int to) const;
  bool adds_slices() const;
  void reduce(std::span<const void* const> in, std::span<void* const> out, std::size_t count) const;

  const Request& request_;
  CallScratch& scratch_;
  const Parts in_parts_, out_parts_;
  const int rank_, size_;
  const std::size_t element_;
  std::size_t per_piece_;  // elements per piece (per part, if a piece holds parts for all ranks)
  std::size_t pieces_;
};

}  // namespace tutti::comm
