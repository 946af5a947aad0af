#pragma once
// Private buffers flow through staging memory in pieces small enough for the second-level cache, three in flight.
#include <span>

#include "tutti/comm/layout.h"
#include "tutti/comm/shared_memory/channel.h"

namespace tutti {

// The data movement of one operation, piece by piece. Iteration k = 0 .. pieces() + 1 of every rank is
//     copy_in(k) · wait for everybody's iteration k - 1 · combine(k - 1) · post · copy_out(k - 2)
// so a piece's slot (k mod 3) is written again only after everybody's combine of its former content.
class StagedTransfer {
 public:
  // The channel's scratch holds where each rank's three pieces start and, for a premultiplied sum, the factors.
  // `largest_split`: with splits, elements of the largest part of all.
  StagedTransfer(DirectChannel& channel, const Request& request, std::uint64_t largest_split);

  std::size_t pieces() const { return pieces_; }
  void prepare() {  // before the meeting of this iteration; once
    if (!waiting && iteration < pieces_) copy_in(iteration);
    waiting = true;
  }
  void copy_in(std::size_t k);
  void combine(std::size_t k);
  void copy_out(std::size_t k);

  std::size_t iteration = 0;  // of the operation that drives this
  bool waiting = false;

 private:
  struct Span {
    std::size_t begin, count;  // elements
  };
  Span piece(std::size_t k, std::size_t total) const;  // of a buffer or part of `total` elements
  Span slice(Span whole, int rank) const;              // of a piece, for the rank that adds it
  std::byte* slot(int rank, std::size_t k) const { return scratch_.slots[rank] + k % kPieces * kPieceBytes; }
  std::byte* sub_slot(int rank, std::size_t k, int part) const {
    return slot(rank, k) + std::size_t(part) * per_piece_ * element_;
  }
  const std::byte* in(std::size_t element) const {
    return static_cast<const std::byte*>(request_.in) + element * element_;
  }
  std::byte* out(std::size_t element) const { return static_cast<std::byte*>(request_.out) + element * element_; }
  // Elements that `from` has for `to`; one of them is this rank.
  std::size_t part_count(int from, int to) const;
  bool adds_slices() const;
  void reduce(std::span<const void* const> in, std::span<void* const> out, std::size_t count) const;

  const Request& request_;
  CallScratch& scratch_;
  const Parts in_parts_, out_parts_;
  const int rank_, size_;
  const std::size_t element_;
  std::size_t per_piece_;  // elements of a piece (of each part, where a piece holds one for every rank)
  std::size_t pieces_;
};

}  // namespace tutti
