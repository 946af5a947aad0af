#include "tutti/embedding/table_array.h"

namespace tutti {

const char* name(TableArray array) {
  switch (array) {
    case TableArray::kRows:
      return "rows";
    case TableArray::kState:
      return "state";
    case TableArray::kRowWeights:
      return "row_weights";
    case TableArray::kRowWeightState:
      return "row_weight_state";
  }
  return "?";
}

std::int64_t columns_of(TableArray array, std::int64_t dim, const EmbeddingOptions& options) {
  switch (array) {
    case TableArray::kRows:
      return dim;
    case TableArray::kState:
      return options.rule == TableRule::kAdagrad ? dim : options.rule == TableRule::kRowWiseAdagrad ? 1 : 0;
    case TableArray::kRowWeights:
      return options.row_weights == RowWeights::kNone ? 0 : 1;
    case TableArray::kRowWeightState:
      return options.row_weights == RowWeights::kLearned && options.rule != TableRule::kSgd ? 1 : 0;
  }
  return 0;
}

}  // namespace tutti
