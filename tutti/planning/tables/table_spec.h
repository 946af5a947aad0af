#pragma once
// What an embedding table is, and how a batch of samples is dealt out to ranks: the vocabulary of planning/tables.
#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

struct TableSpec {
  std::string name;       // for plan files and errors; unique among the tables of a model
  std::int64_t rows = 0;  // at least 1
  std::int64_t dim = 0;   // numbers of a row, at least 1
  double lookups = 1;     // indices of a sample, on average: what the planner reckons with
};

// A run of numbers, [begin, end).
struct Slice {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Slice&) const = default;
};

// The part of 0 .. n that falls to `rank` of `ranks`: as even as can be, the first n % ranks get one more
// (facebookresearch/dlrm: get_my_slice).
constexpr Slice my_slice(std::int64_t n, int rank, int ranks) {
  const std::int64_t each = n / ranks, more = n % ranks;
  return {rank * each + (rank < more ? rank : more), (rank + 1) * each + (rank + 1 < more ? rank + 1 : more)};
}
// The sizes of these parts, by rank (get_split_lengths).
std::vector<std::int64_t> split_lengths(std::int64_t n, int ranks);

}  // namespace tutti
