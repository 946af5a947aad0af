#include "tutti/models/dlrm/scorer.h"

#include <ATen/ATen.h>

#include "tutti/models/dlrm/batches.h"
#include "tutti/models/dlrm/model.h"
#include "tutti/models/dlrm/saved_model.h"

namespace tutti::dlrm {

Scorer::Scorer(const std::string& folder, const ScorerOptions& options) {
  const auto architecture = saved_architecture(folder).or_throw();
  model_ =
      std::make_unique<Model>(Group(), architecture, place_by_count(table_specs(architecture, 1), 1), ModelOptions());
  load_model({}, folder, *model_, false).status().or_throw();
  model_->quantise(options.mlp_bits, options.table_bits);
}

Scorer::~Scorer() = default;

const Architecture& Scorer::architecture() const { return model_->architecture(); }

std::vector<double> Scorer::score(std::span<const ScoringRequest> requests) {
  const auto& architecture = model_->architecture();
  const auto dense_features = std::size_t(architecture.dense_features());
  std::vector<float> dense;
  std::vector<Lookups> features(architecture.features.size(), Lookups{.offsets = {0}});
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto& request = requests[i];
    TUTTI_REQUIRE(request.dense.size() == dense_features && request.rows.size() == features.size(), "request ", i,
                  " has ", request.dense.size(), " dense and ", request.rows.size(),
                  " categorical features, but the model has ", dense_features, " and ", features.size());
    dense.insert(dense.end(), request.dense.begin(), request.dense.end());
    for (std::size_t feature = 0; feature < features.size(); ++feature) {
      auto& lookups = features[feature];
      for (auto row : request.rows[feature]) {
        TUTTI_REQUIRE(row >= 0 && row < architecture.features[feature].rows, "request ", i, ", feature ", feature,
                      ": there is no row ", row, " among ", architecture.features[feature].rows);
        lookups.indices.push_back(row);
      }
      lookups.offsets.push_back(std::int64_t(lookups.indices.size()));
    }
  }
  std::vector<Lookups> tables(architecture.tables.size());
  for (std::size_t i = 0; i < features.size(); ++i) {
    const auto& feature = architecture.features[i];
    if (feature.kind == FeatureKind::kQuotientRemainder) {
      divide_lookups(features[i], feature.collisions, tables[feature.table], tables[feature.table + 1]);
    } else {
      tables[feature.table] = std::move(features[i]);
    }
  }
  std::vector<LookupsView> views;
  for (const auto& table : tables) views.push_back({table.offsets, table.indices});
  const auto count = std::int64_t(requests.size());
  const auto predictions =
      model_
          ->predict({.samples = count,
                     .dense = at::from_blob(dense.data(), {count, std::int64_t(dense_features)}, at::kFloat),
                     .lookups = views})
          .to(at::kDouble)
          .contiguous();
  return {predictions.data_ptr<double>(), predictions.data_ptr<double>() + count};
}

}  // namespace tutti::dlrm
