#pragma once
// The operations that `tutti bench` knows, one call of each, and the check of what the call did.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/comm/group.h"

namespace tutti::bench {

struct Operation {
  const char* name;
  Kind kind;    // send_recv: kSend
  bool splits;  // the vector is split in one part a rank; a vector with fewer elements than ranks is left out
  bool reduces;
  // Bytes over the busiest wire for a byte of the vector, n ranks, as nccl-tests defines them: bus bandwidth is that
  // times bytes / time.
  double (*bus_factor)(double ranks);
};

// By the names of the verbs; send_recv sends to the next rank and receives from the one before, at the same time.
std::span<const Operation> operations();

// One operation on one size: buffers of `bytes` each, that stay the caller's. Every rank makes the same calls.
class Exercise {
 public:
  Exercise(const Group& world, const Operation& operation, DType dtype, ReduceOp op, std::size_t bytes, std::byte* a,
           std::byte* b);
  // Numbers that are small, exact in every dtype, and different on each rank and at neighbouring places.
  void write_pattern();
  void write_zeros();
  void call() const;   // throws Exception
  Work start() const;  // the same, under way (send_recv is carried out at once)
  // After write_pattern() and one call(): elements of the result on this rank that are not what they must be.
  std::size_t count_wrong() const;
  std::string plan_name() const { return world_.plan_name(request_); }
  const Operation& operation() const { return operation_; }
  // Of the whole vector, as measured: whole parts of whole elements.
  std::size_t bytes() const;

 private:
  double expected(std::size_t element, std::size_t part) const;
  double reduced(std::size_t element) const;
  const std::byte* result() const;
  std::size_t result_count() const;

  const Group& world_;
  const Operation& operation_;
  Request request_;
  std::vector<std::size_t> splits_;  // _v verbs
  std::size_t count_;                // elements of the whole vector
  std::byte *a_, *b_;
};

}  // namespace tutti::bench
