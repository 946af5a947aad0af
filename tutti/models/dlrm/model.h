#pragma once
// The model: bottom MLP, embedding tables, interaction, top MLP; on one process or on the ranks of a world.
//
//   post the lookups of my tables        (the whole batch)
//   bottom MLP                           (my samples)
//   wait for the pooled rows             (my samples, all tables)
//   interaction, top MLP, loss           (my samples)
//
// and the same backwards. Tables are divided among ranks (parallel/sharded_embeddings.h). The MLPs are on every rank,
// in DataParallel. Every rank makes the same calls. One thread at a time. Throws Exception.
#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/embedding/lookups.h"
#include "tutti/models/dlrm/architecture.h"
#include "tutti/models/dlrm/options.h"
#include "tutti/models/dlrm/packed_table.h"
#include "tutti/models/dlrm/quantised.h"
#include "tutti/parallel/sharded_embeddings.h"

namespace tutti::dlrm {

struct ModelOptions {
  OptimizerKind optimizer = OptimizerKind::kSgd;
  RealType type = RealType::kFloat32;
  at::Device device = at::kCPU;  // of the MLPs and the interaction; tables are in memory of the host
  EmbeddingOptions tables;       // dtype, rule and row_weights are set by the model
  // 4 or 8: rows are kept in so few bits (packed_table.h), for predict() alone. One process, plain pooling.
  int packed_bits = 32;
};

// What the model reads of a batch.
struct ModelBatch {
  std::int64_t samples = 0;              // of all ranks
  at::Tensor dense;                      // [my samples, dense features], of the model's type, on the CPU
  std::span<const LookupsView> lookups;  // by table of the architecture; those of my tables
  std::int64_t number = -1;              // for errors
};

// A tensor of the part that every rank has whole.
struct DenseTensor {
  std::string name;    // as Python's state_dict() has it: "bot_l.0.weight"
  at::Tensor value;    // the parameter's memory
  at::Tensor squares;  // the optimizer's memory: sums of squared gradients; undefined with SGD
};

class Model {
 public:
  Model(const Group& world, const Architecture& architecture, TablePlacement placement, const ModelOptions& options);
  ~Model();

  const Architecture& architecture() const { return architecture_; }
  at::ScalarType type() const { return type_; }
  std::vector<DenseTensor> dense() const;
  ShardedEmbeddings& tables();  // not of packed ones
  // What ShardedEmbeddings says, or packed tables in its place.
  std::vector<std::size_t> my_tables() const;
  std::vector<std::pair<std::size_t, TableShard>> my_shards() const;
  std::int64_t columns(std::size_t table, TableArray array) const;
  void write_rows(std::size_t table, std::int64_t first, const at::Tensor& rows, TableArray array = TableArray::kRows);
  at::Tensor read_rows(std::size_t table, std::int64_t first, std::int64_t count) const;
  std::size_t packed_bytes() const;  // of all tables; 0 if not packed
  // Weights that depend on the seed alone (initial_weights.h).
  void draw_weights(std::uint32_t seed);

  // Probabilities [my samples, 1], on the CPU; keeps what learn() needs.
  at::Tensor forward(const ModelBatch& batch);
  // One step from the gradient of forward()'s result: of a loss that is divided by the samples of all ranks.
  void learn(const at::Tensor& gradient, double learning_rate);
  // Probabilities, nothing kept.
  at::Tensor predict(const ModelBatch& batch);
  // From now on predict() computes with MLPs of 8 or 16 bits (32: as they are) and with rows that were rounded to 4 or
  // 8 bits (32: as they are). Not to be trained afterwards. Collective.
  void quantise(int mlp_bits, int table_bits);

 private:
  struct Dense;
  ShardedEmbeddings::Pending post(const ModelBatch& batch);
  std::vector<at::Tensor> wait(const ShardedEmbeddings::Pending& pending);
  std::vector<at::Tensor> pooled(const ModelBatch& batch) const;  // of packed tables
  std::vector<at::Tensor> vectors_of(std::vector<at::Tensor> rows) const;
  at::Tensor interact(const at::Tensor& x, const std::vector<at::Tensor>& vectors) const;

  Architecture architecture_;
  at::ScalarType type_;
  at::Device device_;
  Group table_group_;  // of one process: none
  std::unique_ptr<Dense> dense_;
  std::unique_ptr<QuantisedMlp> small_bottom_, small_top_;  // if quantised
  std::unique_ptr<ShardedEmbeddings> tables_;               // or
  std::vector<PackedTable> packed_;
};

}  // namespace tutti::dlrm
