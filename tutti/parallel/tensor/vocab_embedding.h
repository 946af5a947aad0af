#pragma once
// Word embeddings whose rows are divided among the ranks of a tensor group.
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string_view>

#include "tutti/comm/group.h"
#include "tutti/parallel/tensor/initial_weights.h"
#include "tutti/parallel/tensor/parameter_layout.h"

namespace tutti {

// The smallest multiple of divisible * ranks that is not less than `words`: so every rank has the same number of rows.
// Megatron-LM's --make-vocab-size-divisible-by is 128.
std::int64_t padded_vocabulary(std::int64_t words, std::int64_t divisible, int ranks);

struct VocabParallelEmbeddingOptions {
  std::int64_t words = 0;    // ids are 0 .. words - 1
  std::int64_t columns = 0;  // of a row: the hidden size
  std::int64_t divisible = 128;
  bool sequence_parallel = false;
  InitialWeights initial = {};
  at::ScalarType dtype = at::kFloat;
};

// Rank r has rows r * p .. (r + 1) * p of the padded vocabulary, p = padded / size(). Rows of padding are zero, never
// chosen, get no gradient, and are in no checkpoint: the layout has `words` rows, whatever the number of ranks.
class VocabParallelEmbeddingImpl : public torch::nn::Module, public TensorParallelModule {
 public:
  VocabParallelEmbeddingImpl(const Group& group, VocabParallelEmbeddingOptions options);

  // Ids i64 [seq, ...], the same on every rank, to [seq, ..., columns], with sequence_parallel [seq / size(), ...,
  // columns] (seq must divide). Throws an Exception that names an id outside the vocabulary. On a GPU, where the host
  // would have to wait for that, the row of such an id is NaN.
  at::Tensor forward(const at::Tensor& ids);

  ParameterLayout layout_of(std::string_view name) const override;
  const VocabParallelEmbeddingOptions& options() const { return options_; }
  std::int64_t padded_words() const;

  at::Tensor weight;  // [padded / size(), columns]

 private:
  Group group_;
  VocabParallelEmbeddingOptions options_;
};
TORCH_MODULE(VocabParallelEmbedding);

}  // namespace tutti
