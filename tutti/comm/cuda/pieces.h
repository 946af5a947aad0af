#pragma once
// Splits a call on large buffers into a sequence of calls on small buffers. Pure arithmetic.
#include <cstddef>
#include <vector>

#include "tutti/comm/request.h"

namespace tutti::cuda {

// A run of elements of one of the caller's buffers, and its position in the memory of its piece.
struct Run {
  std::size_t elements_from = 0;  // in the caller's buffer
  std::size_t count = 0;          // elements
  std::size_t bytes_at = 0;       // in the piece's memory
};

// One call of the sequence. Its request has null buffers: input and output are at the byte offsets `in` and `out` in
// the piece's memory. Borrows the splits from this struct.
struct StagedPiece {
  Request request;
  std::vector<std::size_t> in_splits, out_splits;
  std::vector<Run> to_read, to_write;
  std::size_t in = 0, out = 0, bytes = 0;
  bool reads = false, writes = false;  // whether this rank's call has an input, an output
};

class Pieces {
 public:
  // The request must be valid for rank `rank` of `size`. `most` is the bytes of a piece. A send or receive is one piece
  // of any size, because messages of one tag must not mix.
  Pieces(const Request& request, int rank, int size, std::size_t most);

  // The number of pieces that this rank computes. In some verbs a rank does not know the parts of the others (gather_v,
  // scatter_v, all_to_all with splits). Then the ranks must agree on the maximum of these numbers.
  std::size_t number() const { return number_; }
  bool needs_agreement() const;
  StagedPiece make(std::size_t index) const;  // from number() on: empty parts
  std::size_t largest() const;                // bytes of memory that a piece needs at most

 private:
  struct Side {
    std::vector<std::size_t> parts;  // elements; consecutive in the caller's buffer; empty: no buffer
  };
  std::size_t count_in(std::size_t part, std::size_t index) const;
  void lay(const Side& side, std::size_t index, std::size_t at, std::vector<Run>& runs) const;
  std::size_t extent(const Side& side, std::size_t index) const;  // bytes
  std::size_t own_at(const Side& side, std::size_t index) const;  // byte offset of this rank's part in a piece

  Request request_;
  std::vector<std::size_t> in_splits_, out_splits_;
  int rank_;
  std::size_t element_, per_piece_ = 1, number_ = 1;
  Side in_, out_;
};

}  // namespace tutti::cuda
