#pragma once
// How sharded embedding tables are updated, exchanged and kept: the same on every rank.
#include <cstddef>
#include <cstdint>
#include <string>

#include "tutti/base/dtype.h"

namespace tutti {

// How rows are updated. g: the gradient of a row, summed over all its lookups in the batch.
enum class TableRule : std::uint8_t {
  kSgd,             // p -= lr * g
  kAdagrad,         // a += g^2, element by element; p -= lr * g / (sqrt(a) + eps), as torch.optim.Adagrad
  kRowWiseAdagrad,  // a += mean over the row of g^2, one number a row; the same step (facebookresearch/dlrm,
                    // RWSAdagrad)
};

// What sends pooled rows and gradients if ranks do not share memory. (If they do, rows are written straight into the
// reader's memory, and this has no effect.) The results have equal bits. Names: those of DLRM_ALLTOALL_IMPL.
enum class TableExchange : std::uint8_t {
  kAllToAll,     // "alltoall": one all_to_all
  kScatter,      // "scatter": a scatter from each rank
  kScatterList,  // "scatter_list": a scatter for each table
};

// The form in which rows are sent over links; within a host they are never converted.
enum class WireFormat : std::uint8_t { kExact, kBF16, kI8 };  // kI8: a row has one scale (float), max |x| / 127

// Factors of the rows in a pooled sum (facebookresearch/dlrm, --weighted-pooling).
enum class RowWeights : std::uint8_t {
  kNone,
  kFixed,    // one number a row, 1 at first, that stays as it is
  kLearned,  // likewise, trained by the rule of the table
};

struct EmbeddingOptions {
  DType dtype = DType::kF32;  // or kF64
  TableRule rule = TableRule::kSgd;
  double lr = 0.01;
  double eps = 1e-10;              // of both Adagrads
  double initial_accumulator = 0;  // likewise
  RowWeights row_weights = RowWeights::kNone;
  TableExchange exchange = TableExchange::kAllToAll;
  WireFormat wire = WireFormat::kExact;
  bool share_memory = true;  // ranks of one host; false: rows are sent as between hosts
  // Gradients of the rows are multiplied by this. 1: what one process computes, if the loss of each rank is divided by
  // the global number of samples. The number of ranks: what facebookresearch/dlrm computes (--dlrm-gradient-scale).
  double gradient_scale = 1;
  // Empty: tables in memory, on huge pages where there are some. Else a folder: each shard is a file there, mapped, and
  // `cached_bytes` of the rows that are used most are kept in memory, for all shards of this rank together.
  std::string folder;
  std::size_t cached_bytes = std::size_t(1) << 30;
};

}  // namespace tutti
