#pragma once
// One layer of a GPT, and the norm that it and the model end in.
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tutti/models/gpt/grid_groups.h"
#include "tutti/models/gpt/options.h"
#include "tutti/parallel/tensor/linear.h"
#include "tutti/parallel/tensor/sequence.h"

namespace tutti::gpt {

// LayerNorm or RMSNorm over the last dimension.
class Norm : public torch::nn::Module, public TensorParallelModule {
 public:
  explicit Norm(const Options& options);
  at::Tensor forward(const at::Tensor& x);
  ParameterLayout layout_of(std::string_view name) const override;

 private:
  const GptShape& shape_;
  const bool partial_;  // sequence parallelism: of its own rows only
  at::Tensor weight_, bias_;
};

// What the layers of a model share.
struct Surroundings {
  const GridGroups& groups;
  const Options& options;
  const SequencePart& part;   // positions that attention has, of this context rank
  const SequencePart& rows;   // positions of all else
  at::Tensor cosines, sines;  // rotary: [positions of the sequence, turned numbers / 2]
};
// Of the rotations, in `dtype`; nothing without.
void fill_rotations(Surroundings& around, at::ScalarType dtype);

// What layers know of the micro batch that they compute.
struct Passage {
  std::int64_t step = 0, micro_batch = 0;  // where dropout is
  at::Tensor positions;                    // i64 [rows of Surroundings::part, batch], or [the same, 1] for all samples
  at::Tensor first_seen;                   // AttentionOptions
};
std::uint64_t dropout_seed(const Options& options, const Passage& passage, std::int64_t which);

// Of weights and of what travels between stages.
at::ScalarType dtype_of(const Options& options);
// As linear layers take their input: in 16 bits with --bf16 and --fp16, else as it is. The gradient comes back in the
// type of `x`.
at::Tensor for_product(const Options& options, const at::Tensor& x);
// The first values of a parameter, by its name in the whole model.
InitialWeights initial_weights(const Options& options, const std::string& name, double deviation);

class Block : public torch::nn::Module {
 public:
  // `number`: in the whole model, from 0. `around` has to stay.
  Block(const Surroundings& around, int number);
  // [rows, batch, hidden].
  at::Tensor forward(const at::Tensor& x, const Passage& passage);

 private:
  at::Tensor attend(const at::Tensor& x, const Passage& passage);
  at::Tensor mlp(const at::Tensor& x);
  at::Tensor dropped(const at::Tensor& x, const Passage& passage, int which) const;

  const Surroundings& around_;
  const int number_;
  std::shared_ptr<Norm> input_norm_, mlp_norm_;
  ColumnParallelLinear qkv_{nullptr}, fc1_{nullptr};
  RowParallelLinear proj_{nullptr}, fc2_{nullptr};
};

}  // namespace tutti::gpt
