#pragma once
// The weights of one block of a model, of which each rank keeps a part.
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/parallel/gradients/finite.h"
#include "tutti/parallel/optim/shards.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti {

// One thread at a time. All weights lie one after another in one flat range, cut into equal parts, one a rank.
class ShardedBlock {
 public:
  // Where the ranks act: gathers and reductions each have their order, on a group of their own.
  struct Groups {
    Group gathers, reductions;
  };

  // Every rank calls, with the same number. The parameters' tensors stay, their memory becomes the block's. `shared`:
  // one copy of the weights for all ranks of the host, in the memory of rank number % size, if they can reach it.
  ShardedBlock(std::string name, std::vector<NamedTensor> parameters, const Groups& groups, int number, bool shared);
  ~ShardedBlock();
  ShardedBlock(const ShardedBlock&) = delete;

  const std::string& name() const { return name_; }
  bool shared() const { return shared_; }
  bool empty() const { return parameters_.empty(); }
  bool all_trained() const { return shards_.size() == parameters_.size(); }
  std::vector<Shard>& shards() { return shards_; }  // of the parameters that are trained
  at::Tensor trained(std::size_t shard) const;      // the parameter itself
  std::byte* own_weight(const Shard& shard) const;  // where its `mine` lies
  std::size_t weight_bytes() const;                 // kept by this rank, while nothing is gathered

  // Weights. Shared ones are always there.
  void begin_gather();  // does not wait
  void gather();        // the weights are there
  void release();
  void keep_own_part();  // what stands in the gathered weights is this rank's part from now on

  // Gradients of this rank, packed as they come.
  void take_gradient(std::size_t shard, NonFiniteWatch& watch, std::size_t number);
  void begin_reduce();  // those that did not come are zeros; does not wait where weights are gathered
  void end_reduce();    // adds the averages of this rank's part to those that are there
  void forget_gradients();
  bool has_averages() const { return averages_.defined(); }
  // Points the shards to their averages.
  void place_averages();

 private:
  struct Gathering;
  struct Reducing;
  at::TensorOptions options() const { return own_.options(); }
  std::int64_t element_bytes() const { return std::int64_t(own_.element_size()); }

  std::string name_;
  Groups groups_;
  std::vector<NamedTensor> parameters_;
  std::vector<std::int64_t> offsets_;  // of each, in the flat range
  std::vector<std::size_t> trained_;   // the shards' parameters
  std::vector<Shard> shards_;
  std::int64_t part_ = 0;  // elements of each rank
  bool shared_ = false;
  std::shared_ptr<std::byte> memory_;  // of shared weights, on the rank that owns them
  at::Tensor flat_;                    // what the parameters are views of; its memory comes and goes
  at::Tensor own_;                     // this rank's part
  bool gathered_ = false;
  std::unique_ptr<Gathering> gathering_;
  at::Tensor packed_;  // gradients
  std::vector<bool> came_;
  std::unique_ptr<Reducing> reducing_;
  at::Tensor averages_;  // of this rank's part
};

}  // namespace tutti
