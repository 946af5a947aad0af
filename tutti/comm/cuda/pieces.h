#pragma once
// How a call on large buffers becomes a row of calls on small ones. Pure arithmetic.
#include <cstddef>
#include <vector>

#include "tutti/comm/request.h"

namespace tutti::cuda {

// A run of elements of one of the caller's buffers, and where it stands in the memory of its piece.
struct Run {
  std::size_t elements_from = 0;  // in the caller's buffer
  std::size_t count = 0;          // elements
  std::size_t bytes_at = 0;       // in the piece's memory
};

// One call of the row. Its request has null buffers: what it reads stands at `in`, what it writes at `out`, both bytes
// from the start of the piece's memory, wherever that is. Borrows the splits from here.
struct Piece {
  Request request;
  std::vector<std::size_t> in_splits, out_splits;
  std::vector<Run> to_read, to_write;
  std::size_t in = 0, out = 0, bytes = 0;
  bool reads = false, writes = false;  // whether the call has that buffer on this rank
};

class Pieces {
 public:
  // Of a request that is valid for rank `rank` of `size`. `most`: bytes of a piece; sends and receives are one piece
  // whatever their size, since messages of one tag must not mix.
  Pieces(const Request& request, int rank, int size, std::size_t most);

  // How many this rank sees. Where the verb is such that the ranks do not know one another's parts (gather_v,
  // scatter_v, all_to_all with splits) they must agree on the largest of these numbers.
  std::size_t number() const { return number_; }
  bool needs_agreement() const;
  Piece make(std::size_t index) const;  // beyond number(): of empty parts
  std::size_t largest() const;          // bytes of memory that a piece may need

 private:
  struct Side {
    std::vector<std::size_t> parts;  // elements, one part after another in the caller's buffer; empty: no buffer
  };
  std::size_t count_in(std::size_t part, std::size_t index) const;
  void lay(const Side& side, std::size_t index, std::size_t at, std::vector<Run>& runs) const;
  std::size_t extent(const Side& side, std::size_t index) const;  // bytes
  std::size_t own_at(const Side& side, std::size_t index) const;  // bytes: where this rank's part is in a piece

  Request request_;
  std::vector<std::size_t> in_splits_, out_splits_;
  int rank_;
  std::size_t element_, per_piece_ = 1, number_ = 1;
  Side in_, out_;
};

}  // namespace tutti::cuda
