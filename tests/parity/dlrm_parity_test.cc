// DLRM on P ranks equals one process: every loss and every weight, in float64 to 1e-10, for placements, exchanges,
// optimizers, tricks and batches that do not divide. Sums run in another order where tables are cut or ranks add, so
// bits may differ; nothing else may.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/parity/dlrm_cases.h"

namespace tutti::dlrm {
namespace {

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
