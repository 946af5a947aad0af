#pragma once
// A linear layer that is whole like torch::nn::Linear until one call divides it among the ranks of a tensor group, with
// the weights it has. A plan divides the layers of a whole module; its forward() stays as it is:
//
//   struct Mlp : torch::nn::Module {
//     tutti::Linear up{nullptr}, down{nullptr};                     // in place of torch::nn::Linear
//     at::Tensor forward(const at::Tensor& x) { return down(at::gelu(up(x))); }
//   };
//   shard_linears(*model, tp, {{"layers.*.up", ShardColumns()}, {"layers.*.down", ShardRows()}});
//
// What the divided layers compute, and the shapes of their inputs and outputs, are those of ColumnParallelLinear and
// RowParallelLinear (linear.h). A torch::nn::Linear in a torch::nn::Sequential is replaced by a tutti::Linear. One that
// is a member of a module is rejected: the module calls its forward(), which is not virtual.
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/parallel/tensor/parameter_layout.h"

namespace tutti {

// Each rank computes some of the output features. The options are those of ColumnParallelLinear.
struct ShardColumns {
  std::vector<std::int64_t> blocks = {};
  bool gather_output = false;
  bool sequence_parallel = false;
};
// Each rank takes some of the input features. The options are those of RowParallelLinear.
struct ShardRows {
  bool input_is_parallel = true;
  bool sequence_parallel = false;
};
using LinearShard = std::variant<ShardColumns, ShardRows>;

class LinearImpl : public torch::nn::Cloneable<LinearImpl>, public TensorParallelModule {
 public:
  LinearImpl(std::int64_t in_features, std::int64_t out_features);
  explicit LinearImpl(const torch::nn::LinearOptions& options);
  explicit LinearImpl(const torch::nn::LinearImpl& whole);  // copies its weights

  // Draws the weights that torch::nn::Linear draws. Throws after shard().
  void reset() override;

  at::Tensor forward(const at::Tensor& input);

  // Keeps this rank's part of the weights of the group's rank 0. The tensors of the parameters stay the same objects,
  // so an optimizer that has them keeps them; its state has to be empty. Every rank of the group calls this. Throws
  // Exception where the features do not divide, and where the layer has been divided before.
  // Exceptions begin with `who`.
  void shard(const Group& group, const LinearShard& shard, const std::string& who = "shard_linear");
  bool is_sharded() const { return sharded_; }

  ParameterLayout layout_of(std::string_view name) const override;

  torch::nn::LinearOptions options;  // of the whole layer
  at::Tensor weight;                 // [out_features, in_features], or this rank's part
  at::Tensor bias;                   // [out_features], or this rank's part, or undefined

 private:
  TensorShape shape_of(std::string_view name) const;
  ParameterLayout layout_in(std::string_view name, const Group& group, const LinearShard& shard,
                            const std::string& who) const;

  bool sharded_ = false;
  Group group_;
  LinearShard shard_;
};
TORCH_MODULE(Linear);

// A divided layer with the weights of an ordinary one, which stays as it is.
Linear shard_linear(const torch::nn::Linear& whole, const Group& group, const LinearShard& shard);

// Names as in named_modules(); a `*` stands for one part of a name, as the number of a layer.
using LinearPlan = std::vector<std::pair<std::string, LinearShard>>;

// Divides the linear layers that the plan names. Before it changes any, it throws Exception for a name that no module
// has, for a module that two entries name, and for one that is no linear layer. Group{} or one rank: the same with one
// part. Every rank of the group calls this with the same plan.
void shard_linears(torch::nn::Module& module, const Group& group, const LinearPlan& plan);

}  // namespace tutti
