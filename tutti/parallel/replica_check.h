#pragma once
// Replicas that differ make training wrong without an error. This compares a digest of all parameters over the ranks,
// every so many steps.
//
//   tutti::ReplicaCheck check(world, tutti::parameters_of(*model), {.every = 1000});
//   for (...) { ...; optimizer.step(); check.step(); }
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti {

// Every rank calls. If the bits of the tensors differ between ranks, throws the same Exception (kMismatch) on every
// rank. It names the ranks that differ from the majority (of two ranks, both) and the first tensor that differs. Cost:
// reading the tensors once (CRC-32C), and an all_gather of 8 bytes.
void require_equal_replicas(const Group& group, std::span<const NamedTensor> tensors);

struct ReplicaCheckOptions {
  std::int64_t every = 1000;  // steps; 0: never
};

class ReplicaCheck {
 public:
  // Of tensors on a GPU each check copies all values to the host.
  ReplicaCheck(const Group& group, std::vector<NamedTensor> tensors, ReplicaCheckOptions options = {});
  // Every rank, after the optimizer's step. In each `every`th call: require_equal_replicas().
  void step();

 private:
  Group group_;
  std::vector<NamedTensor> tensors_;
  ReplicaCheckOptions options_;
  std::int64_t steps_ = 0;
};

}  // namespace tutti
