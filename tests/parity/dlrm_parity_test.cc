// DLRM on P ranks equals one process: every loss and every weight, in float64 to 1e-10, for placements, exchanges,
// optimizers, tricks and batches that do not divide. Sums run in another order where tables are cut or ranks add, so
// bits may differ; nothing else may.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>

#include "tests/harness/ranks.h"
#include "tutti/comm/collectives.h"
#include "tutti/data/clicks/random.h"
#include "tutti/models/dlrm/batches.h"
#include "tutti/models/dlrm/model.h"
#include "tutti/models/dlrm/placing.h"
#include "tutti/models/dlrm/tensors.h"

namespace tutti::dlrm {
namespace {

struct Case {
  const char* name;
  std::function<void(Options&)> change = [](Options&) {};
  bool links_only = false;
};

std::ostream& operator<<(std::ostream& out, const Case& test) { return out << test.name; }

Options options_of(const Case& test) {
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

std::unique_ptr<ClickSource> clicks(int dense, std::vector<std::int64_t> rows, std::int64_t samples, std::int64_t batch,
                                    std::int64_t lookups) {
  RandomClickOptions made;
  made.shape = {dense, std::move(rows)};
  made.samples = samples;
  made.batch_size = batch;
  made.indices_per_lookup = lookups;
  made.round_targets = true;
  return make_random_clicks(made).or_throw();
}

// Two epochs on the ranks of a group; without one, on one process.
Trace train(const Group& world, const Options& options) {
  const int rank = world ? world.rank() : 0, ranks = world ? world.size() : 1;
  auto source = clicks(5, options.architecture.embedding_size, options.data.size, options.training.batch,
                       options.data.indices_per_lookup);
  const auto architecture =
      architecture_of(options.architecture, 5, options.architecture.embedding_size, "").or_throw();
  ModelOptions made{.optimizer = options.training.optimizer, .type = RealType::kFloat64};
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
  for (const auto& tensor : model.dense()) trace.weights.push_back(tensor.value.clone());
  return trace;
}

void check_same(const Trace& found, const Trace& expected, double tolerance) {
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

void qr(Options& options, QrOperation operation) {
  options.architecture.qr = true;
  options.architecture.qr_threshold = 30;
  options.architecture.qr_operation = operation;
  if (operation == QrOperation::kConcat) options.architecture.mlp_bottom.back() = 16;
}

const Case kCases[] = {
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

class DlrmParity : public ::testing::TestWithParam<Case> {};

TEST_P(DlrmParity, RanksEqualOneProcess) {
  const auto options = options_of(GetParam());
  const auto alone = train({}, options);
  for (int ranks : {1, 2, 3, 4}) {
    const auto outcomes =
        test::run_threads(ranks, [&](Group& world) { check_same(train(world, options), alone, 1e-10); });
    EXPECT_EQ(test::describe(outcomes), "") << ranks << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DlrmParity, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(DlrmAccumulation, IsOneBatchOfAllSamples) {
  // Two batches of four are read one after another and make one step; so does a source whose batches have eight.
  class Halves final : public ClickSource {
   public:
    explicit Halves(ClickSource& whole) : whole_(whole) {}
    const ClickShape& shape() const override { return whole_.shape(); }
    std::int64_t batches() const override { return 2 * whole_.batches(); }
    std::int64_t samples(std::int64_t) const override { return 4; }
    Status read(std::int64_t batch, const BatchPart& part, ClickBatch& into) override {
      auto shifted = part;
      const auto base = 4 * (batch % 2);
      shifted.begin += base;
      shifted.end += base;
      TUTTI_TRY(whole_.read(batch / 2, shifted, into));
      into.samples = 4;
      for (auto& table : into.lookups) {
        const auto first = table.offsets[std::size_t(base)];
        Lookups half;
        for (int i = 0; i <= 4; ++i) half.offsets.push_back(table.offsets[std::size_t(base + i)] - first);
        half.indices.assign(table.indices.begin() + first, table.indices.begin() + first + half.offsets.back());
        table = half;
      }
      return {};
    }

   private:
    ClickSource& whole_;
  };
  const auto architecture = architecture_of({}, 4, {4, 3, 2}, "").or_throw();
  const auto run = [&](bool halves) {
    auto whole = clicks(4, {4, 3, 2}, 16, 8, 10);
    Halves half(*whole);
    Model model({}, architecture, place_by_count(table_specs(architecture, 1), 1),
                {.optimizer = OptimizerKind::kAdagrad, .type = RealType::kFloat64});
    model.draw_weights(5);
    BatchReader batches(halves ? static_cast<ClickSource&>(half) : *whole, architecture,
                        {.my_tables = {0, 1, 2}, .accumulate = halves ? 2 : 1});
    for (int i = 0; i < 2; ++i) {
      const auto& step = batches.next();
      EXPECT_EQ(step.samples, 8);
      const auto views = step.views();
      const auto predictions = model.forward(model_batch(model, step, views)), gradient = at::empty_like(predictions);
      loss_of({}, predictions, targets_of(model, step), 8, gradient);
      model.learn(gradient, 0.1);
    }
    std::vector<at::Tensor> weights;
    for (const auto& tensor : model.dense()) weights.push_back(tensor.value.flatten());
    return at::cat(weights);
  };
  EXPECT_TRUE(at::equal(run(true), run(false)));
}

TEST(DlrmGradientScale, OfTheReferenceIsTheNumberOfRanks) {
  auto options = options_of({""});
  const auto alone = train({}, options);
  options.training.reference_gradient_scale = true;
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    const auto found = train(world, options);
    test::check(std::abs(found.losses[0] - alone.losses[0]) < 1e-10, "the first loss is the same");
    test::check(std::abs(found.losses[2] - alone.losses[2]) > 1e-6, "tables have learned twice as fast");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti::dlrm
