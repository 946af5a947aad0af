#pragma once
// What the memories of all ranks and the streams between them hold while the simulator runs. Two kinds: elements with
// real values, for small vectors, and expressions that say what was added to what, which cost the same for 64 MB as for
// 64 bytes. The simulator decides when a step happens and tells the contents, which decide nothing.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tutti/comm/plans/simulator/goal.h"

namespace tutti {

class Contents {
 public:
  virtual ~Contents() = default;
  // A rank's buffers, filled as its goal says, and its scratch memory. Called once for each rank, in rank order.
  virtual void open(const Goal& goal, std::size_t scratch_bytes) = 0;
  // Streams are numbered from 0 without gaps.
  virtual void send(int rank, std::uint32_t stream, const Range& from) = 0;
  virtual void recv(int rank, std::uint32_t stream, const Range& into) = 0;
  virtual void recv_reduce(int rank, std::uint32_t stream, const Range& from, const Range& into) = 0;
  virtual void copy(int rank, const Range& from, const Range& into) = 0;
  virtual void reduce(int rank, const Range& from, const Range& into) = 0;
  // What is wrong on a rank, as a clause ("out byte 128: not every rank was added once"); nothing if all is as the goal
  // says.
  virtual std::optional<std::string> check(int rank, const Goal& goal) = 0;
  // Whether `out` holds the same bits on this rank as on rank 0, which must be asked first: an all_reduce promises it.
  virtual bool same_bits(int rank, const Goal& goal) = 0;
};

class Pool;
std::unique_ptr<Contents> make_symbolic(int ranks, Pool& pool);  // the pool outlives it
// Elements of 1 and 2 bytes are unsigned integers, of 4 and 8 bytes floating point numbers whose sums round.
std::unique_ptr<Contents> make_elements(std::size_t element);

// Where the areas of a rank lie in one space of addresses: buffers that overlap share addresses.
struct Placement {
  std::uint64_t base[3];
  std::uint64_t bytes;
  Placement(const Goal& goal, std::size_t scratch_bytes)
      : base{goal.in_at, goal.overlap ? goal.out_at : goal.in_bytes, goal.in_bytes + goal.out_bytes},
        bytes(goal.in_bytes + goal.out_bytes + scratch_bytes) {}
  std::uint64_t at(const Range& range) const { return base[int(range.area)] + range.offset; }
};

}  // namespace tutti
