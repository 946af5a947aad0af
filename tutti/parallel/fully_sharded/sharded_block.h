#pragma once
// The weights and gradients of one block of a model, of which each rank keeps a part.
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/parallel/optim/shard_place.h"
#include "tutti/parallel/optim/shards.h"
#include "tutti/parallel/optim/state_part.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti::fully_sharded {

// One thread at a time. All weights lie one after another in one flat range, cut into equal parts, one a rank. Each
// rank keeps its part in the parameters' own type (the master weights). Blocks compute in `Types::compute`: if that
// differs, the flat range that is gathered is a copy in that type.
class ShardedBlock {
 public:
  // Gathers and reductions each have an order of their own, and a group of their own. `replicas`: the ranks with the
  // same part, or none.
  struct Groups {
    Group gathers, reductions, replicas;
  };
  struct Types {
    std::optional<at::ScalarType> compute, reduce;  // none: the parameters' own; the type of the gradients
  };

  // Every rank calls, with the same number. All parameters are on one device. Their tensors stay, their memory becomes
  // the block's. `shared`: one copy of the weights for all ranks of the host, in the memory of rank number % size, if
  // they can reach it; not on a GPU.
  ShardedBlock(std::string name, std::vector<NamedTensor> parameters, const Groups& groups, const Types& types,
               int number, bool shared);
  ~ShardedBlock();  // the parameters are empty afterwards, unless unshard() was called
  ShardedBlock(const ShardedBlock&) = delete;

  const std::string& name() const { return name_; }
  bool shared() const { return shared_; }
  bool empty() const { return parameters_.empty(); }
  bool all_trained() const { return shards_.size() == parameters_.size(); }
  std::vector<Shard>& shards() { return shards_; }                             // of the parameters that are trained
  at::Tensor trained(std::size_t shard) const;                                 // the parameter itself
  const at::Tensor& local(std::size_t shard) const { return locals_[shard]; }  // this rank's elements of it
  std::size_t weight_bytes() const;                                            // kept by this rank, nothing gathered
  std::vector<StatePart> own_weights() const;                                  // of all parameters

  // Weights. Shared ones are always there.
  void begin_gather();  // does not wait
  void gather();        // the weights are there
  void release();
  void publish();  // after the own part was written: others gather what it is now (shared: a barrier has to follow)
  // In between the parameters are whole, in their own type; what is written to this rank's part stays.
  void begin_whole();
  void end_whole();
  // The parameters are whole from here on, in memory of this process. Then (shared) a barrier has to follow.
  void unshard();

  // Gradients of this rank, packed as they come. What is packed of the parameter now; undefined if it has no gradient.
  at::Tensor take_gradient(std::size_t shard);
  // Those that did not come are zeros. Does not wait where weights are gathered.
  void begin_reduce();
  void pass_on_reduce();  // waits for the average of the group, and begins that over the replicas
  void end_reduce();      // adds the averages of this rank's part to those that are there
  void forget_gradients();
  bool has_averages() const { return averages_.defined(); }
  void scale_averages(double factor) { averages_.mul_(factor); }
  at::Tensor average_of(std::size_t shard) const;  // this rank's elements
  void place_averages();                           // points the shards to their averages

 private:
  struct Gathering {
    at::Tensor memory;
    TensorWork work;
  };
  struct Reducing {
    at::Tensor packed, part;
    TensorWork work;
    bool passed_on = false;
  };
  bool mixed() const { return flat_.scalar_type() != own_.scalar_type(); }
  std::int64_t rank() const { return groups_.reductions.rank(); }
  at::Tensor view_in(const at::Tensor& flat, std::size_t parameter) const;
  void set_views(const at::Tensor& flat);
  void take_own_part();
  Run own_run(std::size_t parameter) const;  // of its elements

  std::string name_;
  Groups groups_;
  std::vector<NamedTensor> parameters_;
  std::vector<std::int64_t> offsets_;  // of each, in the flat range
  std::vector<std::size_t> trained_;   // the shards' parameters
  std::vector<Shard> shards_;
  std::vector<at::Tensor> locals_;
  ShardPlaces places_;  // of these
  at::ScalarType reduce_ = at::kFloat;
  std::int64_t part_ = 0;  // elements of each rank
  bool shared_ = false;
  std::shared_ptr<std::byte> memory_;  // of shared weights, on the rank that owns them
  at::Tensor flat_;                    // what the parameters are views of; its memory comes and goes
  at::Tensor whole_;  // the same in the parameters' own type, without memory; flat_ if that is its type
  at::Tensor own_;    // this rank's part, in the parameters' own type
  at::Tensor sent_;   // and in that of flat_: what is gathered
  bool gathered_ = false, unsharded_ = false;
  std::optional<Gathering> gathering_;
  at::Tensor packed_;  // gradients
  std::vector<bool> came_;
  std::optional<Reducing> reducing_;
  at::Tensor averages_;  // of this rank's part
};

}  // namespace tutti::fully_sharded
