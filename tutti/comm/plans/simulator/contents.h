#pragma once
// The contents of all memories and of the streams between ranks while the simulator runs. There are two kinds. Elements
// hold real values, for small vectors. Expressions record what was added to what, and cost the same for 64 MB as for 64
// bytes. The simulator decides when a step happens and calls Contents to apply it.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tutti/comm/plans/simulator/goal.h"

namespace tutti::comm {

class Contents {
 public:
  virtual ~Contents() = default;
  // Creates a rank's buffers, filled as its goal says, and its scratch memory. Called once per rank, in rank order.
  virtual void open(const Goal& goal, std::size_t scratch_bytes) = 0;
  // Streams are numbered from 0 without gaps.
  virtual void send(int rank, std::uint32_t stream, const Range& from) = 0;
  virtual void recv(int rank, std::uint32_t stream, const Range& into) = 0;
  virtual void recv_reduce(int rank, std::uint32_t stream, const Range& from, const Range& into) = 0;
  virtual void copy(int rank, const Range& from, const Range& into) = 0;
  virtual void reduce(int rank, const Range& from, const Range& into) = 0;
  // Returns what is wrong on a rank as a clause ("out byte 128: not every rank was added once"), or nothing if the goal
  // is met.
  virtual std::optional<std::string> check(int rank, const Goal& goal) = 0;
  // Whether `out` holds the same bits on this rank as on rank 0. Must be called for rank 0 first. Every all_reduce
  // promises it.
  virtual bool same_bits(int rank, const Goal& goal) = 0;
};

class Pool;
std::unique_ptr<Contents> make_symbolic(int ranks, Pool& pool);  // the pool outlives it
// Elements of 1 and 2 bytes are unsigned integers; those of 4 and 8 bytes are floating point numbers whose sums round.
std::unique_ptr<Contents> make_elements(std::size_t element);

// Maps the areas of a rank to one address space. Buffers that overlap share addresses.
struct Placement {
  std::uint64_t base[3];
  std::uint64_t bytes;
  Placement(const Goal& goal, std::size_t scratch_bytes)
      : base{goal.in_at, goal.overlap ? goal.out_at : goal.in_bytes, goal.in_bytes + goal.out_bytes},
        bytes(goal.in_bytes + goal.out_bytes + scratch_bytes) {}
  std::uint64_t at(const Range& range) const { return base[int(range.area)] + range.offset; }
};

}  // namespace tutti::comm
