#pragma once
// What DLRM is trained with to be compared with one process, and the comparison.
#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <vector>

#include "tests/harness/ranks.h"
#include "tutti/comm/collectives.h"
#include "tutti/data/clicks/random.h"
#include "tutti/models/dlrm/batches.h"
#include "tutti/models/dlrm/model.h"
#include "tutti/models/dlrm/placing.h"
#include "tutti/models/dlrm/tensors.h"

namespace tutti::dlrm {

struct Case {
  const char* name;
  std::function<void(Options&)> change = [](Options&) {};
  bool links_only = false;
};

inline std::ostream& operator<<(std::ostream& out, const Case& test) { return out << test.name; }

inline Options options_of(const Case& test) {
  Options options;
  options.architecture.embedding_size = {40, 7, 300, 5};
  options.architecture.sparse_feature_size = 8;
  options.architecture.mlp_bottom = {5, 9, 8};
  options.architecture.mlp_top = {11, 1};
  options.data.size = 47;
  options.data.indices_per_lookup = 4;
  options.training.batch = 10;  // the last one has 7
  options.training.learning_rate = 0.3;
  options.training.type = RealType::kFloat64;
  options.loss.function = LossFunction::kBce;
  options.placement.placement = "count";
  options.placement.links_only = test.links_only;
  test.change(options);
  return options;
}

struct Trace {
  std::vector<double> losses;
  std::vector<at::Tensor> weights;
};

inline std::unique_ptr<ClickSource> clicks(int dense, std::vector<std::int64_t> rows, std::int64_t samples,
                                           std::int64_t batch, std::int64_t lookups) {
  RandomClickOptions made;
  made.shape = {dense, std::move(rows)};
  made.samples = samples;
  made.batch_size = batch;
  made.indices_per_lookup = lookups;
  made.round_targets = true;
  return make_random_clicks(made).or_throw();
}

// Two epochs on the ranks of a group; without one, on one process. Tables are in memory of the host.
inline Trace train(const Group& world, const Options& options, at::Device device = at::kCPU) {
  const int rank = world ? world.rank() : 0, ranks = world ? world.size() : 1;
  auto source = clicks(5, options.architecture.embedding_size, options.data.size, options.training.batch,
                       options.data.indices_per_lookup);
  const auto architecture =
      architecture_of(options.architecture, 5, options.architecture.embedding_size, "").or_throw();
  ModelOptions made{.optimizer = options.training.optimizer, .type = RealType::kFloat64, .device = device};
  made.tables.exchange = options.placement.exchange;
  made.tables.share_memory = !options.placement.links_only;
  if (options.training.reference_gradient_scale) made.tables.gradient_scale = ranks;
  Model model(world, architecture, place_tables(options, table_specs(architecture, 2), ranks).or_throw().placement,
              made);
  model.draw_weights(123);
  BatchReader batches(*source, architecture,
                      {.rank = rank,
                       .ranks = ranks,
                       .my_tables = model.tables().my_tables(),
                       .accumulate = options.training.accumulate,
                       .ahead = rank % 2});
  Trace trace;
  const auto steps = 2 * (batches.batches() + options.training.accumulate - 1) / options.training.accumulate;
  for (std::int64_t i = 0; i < steps; ++i) {
    const auto& step = batches.next();
    const auto views = step.views();
    const auto predictions = model.forward(model_batch(model, step, views)), gradient = at::empty_like(predictions);
    double loss = loss_of(options.loss, predictions, targets_of(model, step), double(step.samples), gradient).loss;
    model.learn(gradient, options.training.learning_rate);
    if (world) loss = all_reduce(world, loss);
    trace.losses.push_back(loss / double(step.samples));
  }
  for (std::size_t table = 0; table < architecture.tables.size(); ++table) {
    for (const auto array : kTableArrays) {
      if (model.tables().columns(table, array) > 0)
        trace.weights.push_back(model.tables().read_rows(table, 0, architecture.tables[table].rows, array).clone());
    }
  }
  for (const auto& tensor : model.dense()) trace.weights.push_back(tensor.value.detach().cpu().clone());
  return trace;
}

inline void check_same(const Trace& found, const Trace& expected, double tolerance) {
  test::check(found.losses.size() == expected.losses.size() && found.weights.size() == expected.weights.size(),
              "sizes");
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    test::check(std::abs(found.losses[i] - expected.losses[i]) <= tolerance, "loss ", i, ": ", found.losses[i],
                " expected ", expected.losses[i]);
  }
  for (std::size_t i = 0; i < expected.weights.size(); ++i) {
    const double apart = (found.weights[i] - expected.weights[i]).abs().max().item<double>();
    test::check(apart <= tolerance, "array ", i, " differs by ", apart * 1e12, "e-12");
  }
}

inline void qr(Options& options, QrOperation operation) {
  options.architecture.qr = true;
  options.architecture.qr_threshold = 30;
  options.architecture.qr_operation = operation;
  if (operation == QrOperation::kConcat) options.architecture.mlp_bottom.back() = 16;
}

inline const Case kCases[] = {
    {"by_count"},
    {"by_cost", [](Options& o) { o.placement.placement = "auto"; }},
    {"row_wise", [](Options& o) { o.placement.placement = "row-wise"; }},
    {"column_wise", [](Options& o) { o.placement.placement = "column-wise"; }},
    {"replicated", [](Options& o) { o.placement.placement = "replicated"; }},
    {"links_alltoall", [](Options& o) { o.placement.exchange = TableExchange::kAllToAll; }, true},
    {"links_scatter", [](Options& o) { o.placement.exchange = TableExchange::kScatter; }, true},
    {"links_scatter_list", [](Options& o) { o.placement.exchange = TableExchange::kScatterList; }, true},
    {"links_row_wise", [](Options& o) { o.placement.placement = "row-wise"; }, true},
    {"links_column_wise", [](Options& o) { o.placement.placement = "column-wise"; }, true},
    {"adagrad", [](Options& o) { o.training.optimizer = OptimizerKind::kAdagrad; }},
    {"row_wise_adagrad", [](Options& o) { o.training.optimizer = OptimizerKind::kRowWiseAdagrad; }},
    {"row_wise_adagrad_on_columns",
     [](Options& o) {
       o.training.optimizer = OptimizerKind::kRowWiseAdagrad;
       o.placement.placement = "column-wise";
     }},
    {"cat", [](Options& o) { o.architecture.interaction = Interaction::kCat; }},
    {"with_itself", [](Options& o) { o.architecture.interaction_itself = true; }},
    {"qr_mult", [](Options& o) { qr(o, QrOperation::kMult); }},
    {"qr_add", [](Options& o) { qr(o, QrOperation::kAdd); }},
    {"qr_concat", [](Options& o) { qr(o, QrOperation::kConcat); }},
    {"mixed_dimensions",
     [](Options& o) {
       o.architecture.md = true;
       o.architecture.md_threshold = 30;
       o.training.optimizer = OptimizerKind::kAdagrad;
     }},
    {"learned_weights", [](Options& o) { o.architecture.weighted_pooling = WeightedPooling::kLearned; }},
    {"learned_weights_by_rows",
     [](Options& o) {
       o.architecture.weighted_pooling = WeightedPooling::kLearned;
       o.training.optimizer = OptimizerKind::kAdagrad;
       o.placement.placement = "row-wise";
     }},
    {"accumulated", [](Options& o) { o.training.accumulate = 2; }},
};

}  // namespace tutti::dlrm
