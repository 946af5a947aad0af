#pragma once
// The arrays that are kept of an embedding table.
#include <cstdint>

#include "tutti/embedding/options.h"

namespace tutti {

// What is kept of a table, a number of columns each.
enum class TableArray : std::uint8_t {
  kRows,            // [rows, dim]
  kState,           // accumulators: [rows, dim] (kAdagrad) or [rows, 1] (kRowWiseAdagrad)
  kRowWeights,      // [rows, 1], with RowWeights other than kNone
  kRowWeightState,  // [rows, 1], with kLearned and an Adagrad
};
inline constexpr TableArray kTableArrays[] = {TableArray::kRows, TableArray::kState, TableArray::kRowWeights,
                                              TableArray::kRowWeightState};
// "rows", "state", "row_weights", "row_weight_state"
const char* name(TableArray array);
// The columns of an array of a table of `dim` columns; 0: there is no such array.
std::int64_t columns_of(TableArray array, std::int64_t dim, const EmbeddingOptions& options);

}  // namespace tutti
