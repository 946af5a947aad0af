#pragma once
// Names the parameter that a shard is a run of elements of. FullySharded gives every rank its shards as tensors, and
// any optimizer can step them. Tutti looks here what they are of: so the state of the optimizer is saved under the name
// and in the shape of the parameter, and a norm is that of all ranks.
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/parallel/optim/rule_state.h"

namespace tutti {

struct ShardPlace {
  std::string parameter;  // its name in the model
  at::Tensor whole;       // its shape and strides; the memory may be absent
  Run run;                // the elements of the shard
  Group ranks;            // which have the other elements
};

// The places of some shards, known to shard_place() for as long as this exists.
class ShardPlaces {
 public:
  ShardPlaces() = default;
  ~ShardPlaces();
  ShardPlaces(const ShardPlaces&) = delete;

  void add(const at::Tensor& shard, ShardPlace place);

 private:
  std::vector<at::Tensor> shards_;
};

// Null: the tensor is no shard. Any thread.
std::shared_ptr<const ShardPlace> shard_place(const at::Tensor& tensor);

}  // namespace tutti
