#pragma once
// Stage 3 of ZeRO: weights, gradients and state are split over the ranks, 16/p bytes of f32 a parameter with Adam on p
// ranks. The model is a list of blocks that run one after another; the weights of a block are whole only while it
// runs, forward and backward.
//
//   torch::nn::Sequential model(...);
//   tutti::FullySharded sharded(model, world);
//   tutti::ShardedOptimizer optimizer(sharded, tutti::AdamOptions{.lr = 1e-3});
//   loss(sharded.forward(x), y).backward();
//   optimizer.step();
//   optimizer.zero_grad();
//
// On one host there is one copy of the weights for all ranks, in shared memory, and nothing has to be gathered. Between
// hosts a block is gathered while the one before it computes, and its gradients are averaged while the next is under
// way.
//
// A model that is no Sequential names its blocks and runs each of them by run():
//
//   tutti::FullySharded sharded({{"embed", net->embed}, {"layers.0", net->layer0}, ...}, world);
//   // in place of x = layer0->forward(x, mask):
//   x = sharded.run(1, [&] { return net->layer0->forward(x, mask); });
//
// What it asks of a block: it returns one tensor; of what it computes only that tensor takes part in the loss; its
// parameters are used by no other block (no tied weights) and outside of run() by nobody: they then have no memory that
// could be read (where weights are shared they have). Every rank runs the same blocks in the same order; which of them
// it uses in a loss may differ, a block that it does not use counts as zeros. Several passes of forward() and
// backward() may make one step: their averages are added. Frozen weights are cut with the others of their block.
// Buffers are taken from rank 0 at the start, and are every rank's own after that.
#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/thread.h"
#include "tutti/comm/group.h"

namespace torch::nn {
class Module;
class Sequential;
}  // namespace torch::nn

namespace tutti {

struct FullyShardedOptions {
  int prefetch = 1;                  // blocks that are gathered ahead of the one that runs
  bool share_on_host = true;         // one copy of the weights for all ranks, where they are all on one host
  bool heap_tensors = true;          // as in DataParallelOptions
  bool allow_empty_batches = false;  // likewise, of forward()
};

// Not thread-safe, except that the hooks may run on autograd's threads. Every rank makes one, uses it and lets it go
// alike. Takes f32 and f64 parameters, of one type within a block.
class FullySharded {
 public:
  struct Block {
    std::string name;  // the parameters' names begin with it: "layers.0" and "weight" make "layers.0.weight"
    std::shared_ptr<torch::nn::Module> module;
  };
  // Compares the models, takes rank 0's weights and buffers. Throws Exception: models that differ, a parameter in two
  // blocks, types that it does not take. The parameters stay the tensors that they are.
  FullySharded(std::vector<Block> blocks, const Group& group, FullyShardedOptions options = {});
  template <class Sequential>
    requires std::same_as<Sequential, torch::nn::Sequential> FullySharded(const Sequential& model, const Group& group,
                                                                          FullyShardedOptions options = {})
        : FullySharded(&model, group, options) {}
    // The parameters are empty afterwards; save them before, with whole().
    ~FullySharded();
    FullySharded(const FullySharded&) = delete;

    // Of a Sequential: runs one block after another. Throws on every rank if x has no samples on one, while gradients
    // are recorded.
    at::Tensor forward(at::Tensor x);
    // Runs `forward`, in which block number `block` computes the tensor that is returned. Where gradients are recorded
    // its weights come back when backward() reaches that tensor.
    template <class Forward>
    at::Tensor run(std::size_t block, Forward&& forward) {
      enter(block);
      at::Tensor out = std::forward<Forward>(forward)();
      leave(block, out);
      return out;
    }

    // While it lives all weights are there as a whole, to be saved, looked at or loaded: what is written to them, by
    // every rank alike, stays. Every rank makes one; not between forward() and the end of step().
    class Whole {
     public:
      explicit Whole(FullySharded& of);
      ~Whole();
      Whole(const Whole&) = delete;

     private:
      FullySharded& of_;
      const Unwinding unwinding_{};
    };
    [[nodiscard]] Whole whole() { return Whole(*this); }

    std::size_t blocks() const;
    bool shared() const;               // one copy for the ranks of the host
    std::size_t weight_bytes() const;  // that this rank keeps, while no block runs

    struct State;  // fully_sharded_state.h

   private:
    friend class ShardedOptimizer;
    FullySharded(const torch::nn::Sequential* model, const Group& group, FullyShardedOptions options);
    void enter(std::size_t block);
    void leave(std::size_t block, const at::Tensor& out);
    std::shared_ptr<State> state_;  // shared with the hooks, which hold it weakly
};

}  // namespace tutti
