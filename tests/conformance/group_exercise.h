#pragma once
// One call of one verb with buffers of its own, and the check of what came out, which each rank computes alone.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/comm/group.h"

namespace tutti::test {

// Memory for a test buffer, from the heap or private, filled with a pattern that no result has.
class Buffer {
 public:
  Buffer(const Group& world, bool heap, DType dtype, std::size_t count);
  std::byte* data() { return shared_ ? shared_.get() : own_.data(); }

 private:
  std::shared_ptr<std::byte> shared_;
  std::vector<std::byte> own_;
};

// The ops that a dtype has.
std::vector<ReduceOp> ops_of(DType dtype);

struct Case {
  DType dtype;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count;  // of the _v verbs: the parts differ, every third is empty
  bool heap, in_place;
  int root = 0;
};

class Exercise {
 public:
  Exercise(const Group& world, Kind kind, const Case& what);
  Exercise(const Exercise&) = delete;
  const Request& request() const { return request_; }
  // After the call. Throws with the first element that is not what it must be.
  void check() const;

 private:
  void make_parts();
  void make_uneven_parts();
  std::string words() const;
  void fill(std::byte* into, std::size_t count, std::size_t first) const;  // with this rank's values from `first` on
  bool expected(std::vector<std::byte>& bytes) const;
  double value(int rank, std::size_t index) const;
  double reduced(std::size_t index) const;
  double reduced(std::size_t index, int ranks) const;  // of those from 0 on

  const Group world_;
  const Case case_;
  std::vector<std::size_t> splits_, begins_;  // _v verbs
  std::vector<Buffer> memory_;
  Request request_;
};

}  // namespace tutti::test
