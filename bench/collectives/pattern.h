#pragma once
// What the ranks bring to an operation, and what must come of it: arithmetic of its own, in double.
#include <cstddef>
#include <functional>

#include "tutti/comm/request.h"

namespace tutti::bench {

// The pattern repeats every so many elements: a prime, so that a piece of any power-of-two size that lands in a wrong
// place shows.
inline constexpr std::size_t kPeriod = 251;

// Small numbers, exact in every dtype, different on each rank and at neighbouring places.
struct Pattern {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  int ranks = 1;

  double brought(int rank, std::size_t element) const;   // by this rank
  double reduced(std::size_t element, int count) const;  // what the op makes of ranks 0 to count - 1
  static double factor(int rank);                        // of a premultiplied sum

  void write(int rank, std::byte* data, std::size_t count) const;
  // Elements among `count` at `data` that are not expected(i); expected() repeats every kPeriod.
  std::size_t count_wrong(const std::byte* data, std::size_t count,
                          const std::function<double(std::size_t)>& expected) const;
};

}  // namespace tutti::bench
