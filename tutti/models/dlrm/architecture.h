#pragma once
// The sizes of a model, worked out of the options and of the data: what is multiplied with what, and which tables there
// are. Pure; no weights.
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/models/dlrm/options.h"
#include "tutti/planning/tables/placement.h"

namespace tutti::dlrm {

enum class FeatureKind {
  kPlain,              // one table
  kQuotientRemainder,  // two: row id / collisions of the first with row id % collisions of the second (1909.02107)
  kProjected,          // one narrower table, and a matrix that makes its rows as wide as the others (1909.11810)
};

// A categorical feature.
struct Feature {
  FeatureKind kind = FeatureKind::kPlain;
  std::int64_t rows = 0;        // different ids that it can have
  std::int64_t collisions = 0;  // of kQuotientRemainder
  std::size_t table = 0;        // its table, or the first of its two
};

struct TableShape {
  std::int64_t rows = 0, dim = 0;
};

struct Architecture {
  ArchitectureOptions options;            // what it was worked out of
  std::vector<std::int64_t> bottom, top;  // sizes from input to output; top begins with the interaction's
  std::vector<Feature> features;
  std::vector<TableShape> tables;  // of all features, in their order
  std::int64_t dim = 0;            // of each vector in the interaction
  Interaction interaction = Interaction::kDot;
  bool itself = false;
  QrOperation qr_operation = QrOperation::kMult;
  WeightedPooling pooling = WeightedPooling::kNone;

  std::int64_t dense_features() const { return bottom.front(); }
  std::int64_t vectors() const { return std::int64_t(features.size()) + 1; }  // in the interaction
  std::int64_t interactions() const { return top.front(); }
};

// `dense` and `rows` are those of the data; `where` names it in errors ("day_train.bin"). kUsage where the options ask
// for something else.
Result<Architecture> architecture_of(const ArchitectureOptions& options, std::int64_t dense,
                                     const std::vector<std::int64_t>& rows, const std::string& where);

// What tables hold, for planners and files: "table_0", or of a quotient-remainder feature "table_3_quotient", ...
std::vector<TableSpec> table_specs(const Architecture& architecture, double lookups);
// Lookups of a sample in each table: those of random data, on average, or the one of a dataset.
double lookups_of(const DataOptions& options);

// What the interaction of `vectors` vectors of `dim` hands to the top MLP: with dot, the first of them and the strict
// lower triangle of the products (with `itself`, the diagonal too).
std::int64_t interaction_width(Interaction interaction, bool itself, std::int64_t vectors, std::int64_t dim);

// The power rule: a table of n rows gets round(max(1, d0 (n_min / n)^temperature)) columns, the smallest d0; at most
// d0.
std::vector<std::int64_t> mixed_dimensions(const std::vector<std::int64_t>& rows, double temperature, std::int64_t d0,
                                           bool round_to_powers_of_two);

}  // namespace tutti::dlrm
