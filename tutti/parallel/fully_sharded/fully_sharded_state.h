#pragma once
// What a FullySharded and its optimizer share.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/mutex.h"
#include "tutti/base/thread.h"
#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/parallel/fully_sharded/sharded_block.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/compat.h"

namespace tutti {

struct FullySharded::State : std::enable_shared_from_this<FullySharded::State> {
  struct Running {
    std::unique_ptr<ShardedBlock> weights;
    std::shared_ptr<torch::nn::Module> module;
    std::size_t first_shard = 0;  // in the order of all
    bool ran = false;             // recorded gradients in this step
    std::size_t pass = 0;         // in which it last did
    bool reduced = false;         // since then
    std::size_t waiting = 0;      // gradients that have not come
    std::vector<compat::AccumulatorPtr> accumulators;
  };

  State(const Group& group, const FullyShardedOptions& options);
  void add_blocks(std::vector<Block> blocks);
  void install_hooks(std::size_t block) TUTTI_REQUIRES(mutex);
  void check_batch(const at::Tensor& x) const;  // ends the group if it has no samples and is to be trained on
  void enter(std::size_t block);
  void leave(std::size_t block, const at::Tensor& out);
  void enter_backward(std::size_t block);
  void on_gradient(std::size_t block, std::size_t shard);
  void gather_back_to(std::size_t block) TUTTI_REQUIRES(mutex);
  void reduce_what_is_complete(bool all) TUTTI_REQUIRES(mutex);
  void end_pass() TUTTI_REQUIRES(mutex);
  void finish();  // all averages are there; which parameters any rank has used: `used`
  void forget();

  const Group group;
  const FullyShardedOptions options;
  const Unwinding unwinding{};
  ShardedBlock::Groups groups;
  std::optional<HeapTensors> heap;

  std::vector<std::function<at::Tensor(at::Tensor)>> sequence;  // of a Sequential: what each block runs

  mutable Mutex mutex;  // hooks may run on autograd's threads
  std::vector<Running> blocks TUTTI_GUARDED_BY(mutex);
  std::vector<std::size_t> in_flight TUTTI_GUARDED_BY(mutex);  // blocks whose gradients are being reduced
  std::size_t shard_count TUTTI_GUARDED_BY(mutex) = 0;
  std::size_t pass TUTTI_GUARDED_BY(mutex) = 1;  // a forward() and its backward()
  // Blocks from here on have been gathered for backward(), in this pass.
  std::size_t gathered_back TUTTI_GUARDED_BY(mutex) = 0;
  std::vector<std::uint8_t> used TUTTI_GUARDED_BY(mutex);  // by shard
  NonFiniteWatch non_finite TUTTI_GUARDED_BY(mutex);
  bool finished TUTTI_GUARDED_BY(mutex) = false;
  bool has_optimizer TUTTI_GUARDED_BY(mutex) = false;
};

}  // namespace tutti
