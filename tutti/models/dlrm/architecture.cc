#include "tutti/models/dlrm/architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti::dlrm {

std::int64_t interaction_width(Interaction interaction, bool itself, std::int64_t vectors, std::int64_t dim) {
  switch (interaction) {
    case Interaction::kDot:
      return dim + (itself ? vectors * (vectors + 1) : vectors * (vectors - 1)) / 2;
    case Interaction::kCat:
      return vectors * dim;
  }
  return 0;
}

std::vector<std::int64_t> mixed_dimensions(const std::vector<std::int64_t>& rows, double temperature, std::int64_t d0,
                                           bool round_to_powers_of_two) {
  const auto smallest = *std::min_element(rows.begin(), rows.end());
  std::vector<std::int64_t> dims;
  for (auto n : rows) {
    double dim = std::nearbyint(std::max(1.0, double(d0) * std::pow(double(smallest) / double(n), temperature)));
    if (n == smallest) dim = double(d0);
    if (round_to_powers_of_two) dim = std::exp2(std::nearbyint(std::log2(dim)));
    dims.push_back(std::min(std::int64_t(dim), d0));
  }
  return dims;
}

Result<Architecture> architecture_of(const ArchitectureOptions& options, std::int64_t dense,
                                     const std::vector<std::int64_t>& rows, const std::string& where) {
  const auto usage = [](std::string detail, std::string hint) {
    return Error{.code = Code::kUsage, .detail = std::move(detail), .hint = std::move(hint)};
  };
  if (options.mlp_bottom.front() != dense) {
    return usage(
        fmt::format("the bottom MLP begins with {} dense features (--arch-mlp-bot {}), but {} has {} columns of them",
                    options.mlp_bottom.front(), sizes_text(options.mlp_bottom), where, dense),
        fmt::format("begin --arch-mlp-bot with {}", dense));
  }
  if (rows.empty()) return usage(fmt::format("{} has no categorical features", where), {});
  Architecture made{.options = options,
                    .bottom = options.mlp_bottom,
                    .dim = options.mlp_bottom.back(),
                    .interaction = options.interaction,
                    .itself = options.interaction_itself,
                    .qr_operation = options.qr_operation,
                    .pooling = options.weighted_pooling};
  const auto dims = options.md ? mixed_dimensions(rows, options.md_temperature, made.dim, options.md_round_dims) : rows;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Feature feature{.rows = rows[i], .table = made.tables.size()};
    if (options.qr && rows[i] > options.qr_threshold) {
      feature.kind = FeatureKind::kQuotientRemainder;
      feature.collisions = options.qr_collisions;
      made.tables.push_back(
          {(rows[i] + options.qr_collisions - 1) / options.qr_collisions, options.sparse_feature_size});
      made.tables.push_back({options.qr_collisions, options.sparse_feature_size});
    } else if (options.md && rows[i] > options.md_threshold && dims[i] < made.dim) {
      feature.kind = FeatureKind::kProjected;
      made.tables.push_back({rows[i], dims[i]});
    } else {
      made.tables.push_back({rows[i], made.dim});
    }
    made.features.push_back(feature);
  }
  made.top = {interaction_width(made.interaction, made.itself, made.vectors(), made.dim)};
  made.top.insert(made.top.end(), options.mlp_top.begin(), options.mlp_top.end());
  return made;
}

std::vector<TableSpec> table_specs(const Architecture& architecture, double lookups) {
  std::vector<TableSpec> specs(architecture.tables.size());
  for (std::size_t i = 0; i < architecture.features.size(); ++i) {
    const auto& feature = architecture.features[i];
    const auto spec = [&](std::size_t table, const char* part) {
      const auto& shape = architecture.tables[table];
      specs[table] = {
          .name = fmt::format("table_{}{}", i, part), .rows = shape.rows, .dim = shape.dim, .lookups = lookups};
    };
    const bool divided = feature.kind == FeatureKind::kQuotientRemainder;
    spec(feature.table, divided ? "_quotient" : "");
    if (divided) spec(feature.table + 1, "_remainder");
  }
  return specs;
}

double lookups_of(const DataOptions& options) {
  if (options.generation == DataGeneration::kDataset) return 1;
  return double(options.indices_per_lookup) * (options.indices_per_lookup_fixed ? 1 : 0.5);
}

}  // namespace tutti::dlrm
