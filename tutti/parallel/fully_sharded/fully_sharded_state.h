#pragma once
// What a FullySharded and its optimizer share.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tutti/base/mutex.h"
#include "tutti/base/thread.h"
#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/parallel/fully_sharded/sharded_block.h"
#include "tutti/parallel/gradients/findings.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/compat.h"

namespace tutti {

namespace fully_sharded {
inline constexpr std::size_t kRoot = 0;  // the block of what is in no other block

// f32, bf16 or f16; throws for any other. `option` names it in the error.
at::ScalarType floating_type(DType type, const char* option);
}  // namespace fully_sharded

// A pass is a forward() and its backward(). Several may make one step.
struct ShardedModule::State : std::enable_shared_from_this<ShardedModule::State> {
  struct Running {
    std::unique_ptr<fully_sharded::ShardedBlock> weights;
    const torch::nn::Module* module = nullptr;
    std::size_t first_shard = 0;  // in the order of all
    bool ran = false;             // recorded gradients in this step
    bool reduced = false;         // since then
    std::size_t waiting = 0;      // gradients that have not come
    bool entered = false;         // ever
    std::size_t pass = 0;         // in which it last ran and recorded gradients,
    std::size_t first = 0;        // and where in `order` it first did in that pass
    std::vector<compat::AccumulatorPtr> accumulators;
  };

  State(std::shared_ptr<torch::nn::Module> model, const Group& group, FullyShardedOptions given);
  void add_blocks();
  void install_hooks(std::size_t block) TUTTI_REQUIRES(mutex);
  void check_batch(const at::Tensor& x) const;  // ends the group if it has no samples and is to be trained on

  void begin_forward();
  void end_forward();
  std::optional<std::size_t> block_of(const torch::nn::Module& module) const;
  void enter(std::size_t block, bool in_backward);
  void leave(std::size_t block, const at::Tensor& out, bool in_backward);
  void enter_backward(std::size_t of_pass, std::size_t position, std::size_t block);
  void on_gradient(std::size_t block, std::size_t shard);
  at::Tensor cast(at::Tensor value, std::optional<DType> type) const;

  void finish();     // all averages are there; `used` and `found` are known
  void hand_over();  // after finish(): averages to the shards' `.grad`
  void forget();     // gradients, averages and what is known of them
  void publish();    // after weights were written: the next forward() has them
  std::optional<Error> refusal() const TUTTI_REQUIRES(mutex);  // of a step whose gradients are not finite
  void begin_whole();
  void end_whole(bool unwinds);
  void unshard();
  std::vector<NamedTensor> locals() const;
  void find_in_averages(GradientFindings& to) const TUTTI_REQUIRES(mutex);
  const std::string& name_of_shard(std::size_t number) const TUTTI_REQUIRES(mutex);
  bool any_shared() const TUTTI_REQUIRES(mutex);

  const std::shared_ptr<torch::nn::Module> module;
  const Group group, replicate;
  const FullyShardedOptions options;
  const Unwinding unwinding{};
  fully_sharded::ShardedBlock::Groups groups;
  std::optional<HeapTensors> heap;

  mutable Mutex mutex;                                  // hooks may run on autograd's threads
  std::vector<Running> blocks TUTTI_GUARDED_BY(mutex);  // the root first
  std::unordered_map<const torch::nn::Module*, std::size_t> by_module TUTTI_GUARDED_BY(mutex);
  std::vector<std::size_t> in_flight TUTTI_GUARDED_BY(mutex);  // blocks whose gradients are being reduced
  std::size_t shard_count TUTTI_GUARDED_BY(mutex) = 0;
  int depth TUTTI_GUARDED_BY(mutex) = 0;  // forward() inside forward()
  std::size_t pass TUTTI_GUARDED_BY(mutex) = 1;
  bool records_pass TUTTI_GUARDED_BY(mutex) = false;          // forward() with gradients has begun in this pass
  bool runs_again TUTTI_GUARDED_BY(mutex) = false;            // a block has, in backward()
  std::vector<std::size_t> order TUTTI_GUARDED_BY(mutex);     // blocks that ran in this pass, and recorded gradients
  std::vector<std::size_t> expected TUTTI_GUARDED_BY(mutex);  // in which blocks probably run: as in the pass before
  std::size_t next TUTTI_GUARDED_BY(mutex) = 0;               // in `expected`
  // In this pass, blocks from here on in `order` have been gathered for backward(); none: it has not begun.
  std::optional<std::size_t> gathered_back TUTTI_GUARDED_BY(mutex);
  std::vector<std::uint8_t> used TUTTI_GUARDED_BY(mutex);  // by shard
  std::uint64_t runs TUTTI_GUARDED_BY(mutex) = 0;          // digest of the blocks that ran since the last step
  // By shard, with global ranks; empty with FiniteCheck::kOff. After finish() the first of all ranks is among them.
  GradientFindings findings TUTTI_GUARDED_BY(mutex);
  std::size_t steps TUTTI_GUARDED_BY(mutex) = 0;                   // that finish() has ended
  std::optional<NonFiniteGradient> found TUTTI_GUARDED_BY(mutex);  // by the last finish()
  double scale TUTTI_GUARDED_BY(mutex) = 1;                        // that gradients were multiplied by
  bool finished TUTTI_GUARDED_BY(mutex) = false;
  bool has_optimizer TUTTI_GUARDED_BY(mutex) = false;
  bool written TUTTI_GUARDED_BY(mutex) = false;  // weights may have been, outside of a ShardedOptimizer
  bool ended TUTTI_GUARDED_BY(mutex) = false;    // unshard()

 private:
  void gather_beside(std::size_t block, bool in_backward) TUTTI_REQUIRES(mutex);
  void gather_back_to(std::size_t position) TUTTI_REQUIRES(mutex);
  void reduce_what_is_complete(bool all) TUTTI_REQUIRES(mutex);
  void begin_reduce(std::size_t block) TUTTI_REQUIRES(mutex);
  void end_pass() TUTTI_REQUIRES(mutex);
  void publish_written() TUTTI_REQUIRES(mutex);
  void require_same_runs() TUTTI_REQUIRES(mutex);
  void agree_on_gradients() TUTTI_REQUIRES(mutex);
  [[noreturn]] void fail(Error error) const;
};

}  // namespace tutti
