#include "tutti/models/dlrm/initial_weights.h"

#include <algorithm>
#include <cmath>

namespace tutti::dlrm {
namespace {

constexpr std::int64_t kValuesAtOnce = 1 << 15;

// A stream of its own for what dlrm_s_pytorch.py does not take from numpy's.
NumpyRandom side_stream(std::uint32_t seed, std::size_t number) {
  return NumpyRandom(seed + 0x9e3779b9u * std::uint32_t(number + 1));
}

void draw_uniform(NumpyRandom& stream, std::size_t table, const TableShape& shape, double bound, const TakeRows& take) {
  const auto rows_at_once = std::max<std::int64_t>(1, kValuesAtOnce / shape.dim);
  std::vector<double> values;
  for (std::int64_t row = 0; row < shape.rows; row += rows_at_once) {
    values.resize(std::size_t(std::min(rows_at_once, shape.rows - row) * shape.dim));
    for (auto& value : values) value = -bound + (bound - -bound) * stream.uniform();
    take(table, row, values);
  }
}

// Uniform in +-b has variance b^2 / 3, and a row of the whole table 1 / (3 n). A sum of two gets it from b^2 = 1 /
// (2n), a product from b^4 = 3 / n, rows side by side from b^2 = 1 / n.
double bound_of_parts(QrOperation operation, double rows) {
  switch (operation) {
    case QrOperation::kAdd:
      return std::sqrt(1 / (2 * rows));
    case QrOperation::kMult:
      return std::sqrt(std::sqrt(3 / rows));
    case QrOperation::kConcat:
      return std::sqrt(1 / rows);
  }
  return 0;
}

}  // namespace

void draw_tables(NumpyRandom& stream, const Architecture& architecture, std::uint32_t seed,
                 const std::function<bool(std::size_t table)>& wants, const TakeRows& take) {
  for (const auto& feature : architecture.features) {
    const auto& shape = architecture.tables[feature.table];
    if (feature.kind == FeatureKind::kQuotientRemainder) {
      const double bound = bound_of_parts(architecture.qr_operation, double(feature.rows));
      for (auto table : {feature.table, feature.table + 1}) {
        auto own = side_stream(seed, table);
        if (wants(table)) draw_uniform(own, table, architecture.tables[table], bound, take);
      }
    } else if (wants(feature.table)) {
      draw_uniform(stream, feature.table, shape, std::sqrt(1 / double(shape.rows)), take);
    } else {
      stream.skip_uniform(std::uint64_t(shape.rows) * std::uint64_t(shape.dim));
    }
  }
}

void draw_layers(NumpyRandom& stream, const std::vector<std::int64_t>& sizes, const TakeLayer& take) {
  std::vector<double> values;
  for (std::size_t layer = 0; layer + 1 < sizes.size(); ++layer) {
    const auto in = sizes[layer], out = sizes[layer + 1];
    values.resize(std::size_t(in * out));
    for (auto& value : values) value = stream.normal(0, std::sqrt(2 / double(in + out)));
    take(values, out, in);
    values.resize(std::size_t(out));
    for (auto& value : values) value = stream.normal(0, std::sqrt(1 / double(out)));
    take(values, out, 0);
  }
}

std::vector<double> draw_projection(std::uint32_t seed, std::size_t feature, std::int64_t dim, std::int64_t columns) {
  auto own = side_stream(seed ^ 0x5bd1e995u, feature);
  const double bound = std::sqrt(6 / double(dim + columns));
  std::vector<double> values(std::size_t(dim * columns));
  for (auto& value : values) value = bound * (2 * own.uniform() - 1);
  return values;
}

}  // namespace tutti::dlrm
