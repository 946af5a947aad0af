#pragma once
// Trains a model of yours, a chain of blocks, on all ranks of a group: Tutti measures the blocks, chooses stages,
// replicas and microbatches, and runs the steps.
//
//   auto blocks = tutti::blocks_of(model);                    // a torch::nn::Sequential, the same on every rank
//   auto training = tutti::parallelize(world, blocks, loss, tutti::AdamOptions{.lr = 1e-3}, inputs, targets);
//   double mean_loss = training.step(inputs, targets);        // one step of the whole batch, the same on every rank
//
// A step equals that of one process on the whole batch, but for the rounding of sums. Two kinds of blocks are
// exceptions: those that draw random numbers (dropout) draw others, and those that compare samples (batch
// normalisation) see the samples of a microbatch. Parameters are f32 or f64, on one device. Every rank has the weights
// of the whole model; gradients, optimizer state and activations are divided. A program makes a tutti::Compute first
// (tensor/compute.h).
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/checkpoint/state.h"
#include "tutti/comm/group.h"
#include "tutti/parallel/optim/update_rule.h"
#include "tutti/planning/blocks.h"

namespace torch::nn {
class Module;
}

namespace tutti {

// One link of the chain. Its output is a floating tensor of the parameters' type, and begins with the dimension of the
// samples.
struct Block {
  std::string name;                           // of its parameters in checkpoints: "0.weight"
  std::shared_ptr<torch::nn::Module> module;  // null: it has no parameters
  std::function<at::Tensor(const at::Tensor& input)> forward;
};
// Returns the blocks of a torch::nn::Sequential, under its names. Each takes one tensor and returns one.
template <class Sequential>
std::vector<Block> blocks_of(const Sequential& model) {
  std::vector<Block> blocks;
  const auto children = model->named_children();
  for (auto& child : *model) {
    blocks.push_back({children[blocks.size()].key(), child.ptr(), [any = child](const at::Tensor& input) mutable {
                        return any.template forward<at::Tensor>(input);
                      }});
  }
  return blocks;
}

// Returns the mean of the loss over the samples of `output`, a tensor of one element.
using LossFunction = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>;

struct ParallelizeOptions {
  double memory = 0;          // bytes that a rank may use; 0: no limit
  double clip_grad_norm = 0;  // the norm to which gradients are clipped; 0: they are not clipped
};

// Measures what the blocks cost on these ranks, all of which compute at once, and what the group's calls cost. Weights,
// buffers and random numbers stay as they are; gradients are let go. From here on memory of tensors is counted
// (tensor/live_bytes.h). `inputs` and `targets`: a batch, [samples, ...] each. Collective; returns the same on every
// rank. Throws Exception on every rank if a block throws on one: it names the block. Blocks and batch are on one
// device.
BlockChain measure_blocks(const Group& group, const std::vector<Block>& blocks, const LossFunction& loss,
                          const UpdateRule& rule, const at::Tensor& inputs, const at::Tensor& targets);

// A training that is divided as a plan says. One thread; do not move it once a Checkpointer has it. Every rank makes
// one, with the same arguments, and calls its functions alike. The blocks keep rank 0's values. Failures throw
// Exception with the root cause.
class DividedTraining {
 public:
  // Throws on every rank where plan, model or rule differ between ranks, where the plan does not fit, and where two
  // stages share a parameter.
  DividedTraining(const Group& group, std::vector<Block> blocks, LossFunction loss, UpdateRule rule, BlockPlan plan,
                  const ParallelizeOptions& options = {});
  ~DividedTraining();
  DividedTraining(DividedTraining&&) noexcept;

  // Forward, backward, averages and the optimizer's step. `inputs` and `targets` are of the whole batch, by sample; a
  // rank reads rows(batch) of them only, the others may hold anything. The mean of the loss over the batch, the same on
  // every rank. A gradient that is not finite is an error on every rank, and no weight has changed.
  double step(const at::Tensor& inputs, const at::Tensor& targets);
  // The mean of the loss alone, with the modules in evaluation mode.
  double evaluate(const at::Tensor& inputs, const at::Tensor& targets);

  // Returns the samples that this rank reads of a batch of this size, which replicas and microbatches divide.
  struct Rows {
    std::int64_t begin = 0, count = 0;
  };
  Rows rows(std::int64_t batch) const;
  const BlockPlan& plan() const;
  void set_lr(double lr);
  // Brings the weights of all stages to every rank's blocks: before the model is used as a whole. Collective.
  void gather_weights();
  // For a Checkpointer, as add("", training): weights and optimizer, under the names of the whole model. Another plan,
  // or a program without this class, can load them.
  void state(StateDict& dict);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Measures, plans and divides. Collective. Throws Exception where nothing fits.
DividedTraining parallelize(const Group& group, std::vector<Block> blocks, LossFunction loss, UpdateRule rule,
                            const at::Tensor& inputs, const at::Tensor& targets,
                            const ParallelizeOptions& options = {});

}  // namespace tutti
