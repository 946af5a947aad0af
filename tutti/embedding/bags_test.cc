// The kernels against plain loops, at widths that fill vectors and widths that do not; and all instruction sets against
// one another, to the bit.
#include "tutti/embedding/bags.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "tutti/base/cpu_dispatch.h"
#include "tutti/embedding/bags_isa.h"
#include "tutti/embedding/mapped_rows.h"

namespace tutti {
namespace {

constexpr std::int64_t kWidths[] = {1, 2, 3, 8, 15, 16, 17, 32, 64, 65, 100, 128, 130, 256};

std::mt19937_64& random_bits() {
  static std::mt19937_64 bits(7);
  return bits;
}
template <class T>
std::vector<T> some(std::int64_t count) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(T(double(random_bits()() >> 11) * 0x1p-53 - 0.5));
  return values;
}

// Bags of 0 to 40 rows.
struct Batch {
  std::vector<std::int64_t> offsets{0}, indices;
  Batch(std::int64_t samples, std::int64_t rows) {
    for (std::int64_t s = 0; s < samples; ++s) {
      for (std::uint64_t k = random_bits()() % 41; k > 0; --k)
        indices.push_back(std::int64_t(random_bits()() % std::uint64_t(rows)));
      offsets.push_back(std::int64_t(indices.size()));
    }
  }
};

#ifdef __x86_64__
const bool kHasAvx2 = cpu_has(Isa::kAvx2), kHasAvx512 = cpu_has(Isa::kAvx512);
#endif

template <class T>
void test_pool(bool weighted, bool located) {
  constexpr std::int64_t kRows = 50, kSamples = 30;
  for (const std::int64_t width : kWidths) {
    const auto rows = some<T>(kRows * width), weights = some<T>(kRows);
    const Batch batch(kSamples, kRows);
    constexpr std::int64_t kBegin = 3, kEnd = 29;
    const std::int64_t stride = width + 5;
    std::vector<const T*> places;
    for (std::int64_t k = batch.offsets[kBegin]; k < batch.offsets[kEnd]; ++k)
      places.push_back(rows.data() + batch.indices[std::size_t(k)] * width);
    std::vector<T> out(std::size_t((kEnd - kBegin) * stride), T(99));
    Bags<T> bags{.rows = located ? nullptr : rows.data(),
                 .located = located ? places.data() : nullptr,
                 .weights = weighted ? weights.data() : nullptr,
                 .count = kRows,
                 .width = width,
                 .offsets = batch.offsets.data(),
                 .indices = batch.indices.data(),
                 .begin = kBegin,
                 .end = kEnd,
                 .out = out.data(),
                 .stride = stride};
    ASSERT_EQ(pool(bags), -1);
    for (std::int64_t s = kBegin; s < kEnd; ++s)
      for (std::int64_t i = 0; i < stride; ++i) {
        double expected = i < width ? 0 : 99;
        for (std::int64_t k = batch.offsets[std::size_t(s)]; i < width && k < batch.offsets[std::size_t(s) + 1]; ++k) {
          const std::int64_t row = batch.indices[std::size_t(k)];
          expected += (weighted ? double(weights[std::size_t(row)]) : 1) * double(rows[std::size_t(row * width + i)]);
        }
        ASSERT_NEAR(double(out[std::size_t((s - kBegin) * stride + i)]), expected, sizeof(T) == 4 ? 1e-5 : 1e-13)
            << "width " << width << ", sample " << s << ", column " << i;
      }
#ifdef __x86_64__
    const std::vector<T> chosen = out;
    EXPECT_EQ(kernels::generic::pool(bags), -1);
    EXPECT_EQ(out, chosen) << "generic, width " << width;
    if (kHasAvx2) {
      EXPECT_EQ((kernels::avx2::pool(bags), out), chosen) << "avx2, width " << width;
    }
    if (kHasAvx512) {
      EXPECT_EQ((kernels::avx512::pool(bags), out), chosen) << "avx512, width " << width;
    }
#endif
  }
}

TEST(Bags, PoolIsThePlainSum) { test_pool<float>(false, false), test_pool<double>(false, false); }
TEST(Bags, PoolWithWeights) { test_pool<float>(true, false), test_pool<double>(true, false); }
TEST(Bags, PoolOfRowsThatLieAnywhere) { test_pool<float>(false, true), test_pool<double>(true, true); }

TEST(Bags, AnIndexThatIsOutsideIsFoundWhereverItStands) {
  const std::vector<float> rows = some<float>(10 * 64);
  for (const std::int64_t bad_index : {std::int64_t(10), std::int64_t(-1), std::int64_t(1) << 40})
    for (std::size_t at = 0; at < 50; ++at) {
      std::vector<std::int64_t> offsets{0, 20, 20, 50}, indices(50, 3);
      indices[at] = bad_index;
      std::vector<float> out(3 * 64);
      EXPECT_EQ(pool(Bags<float>{.rows = rows.data(),
                                 .count = 10,
                                 .width = 64,
                                 .offsets = offsets.data(),
                                 .indices = indices.data(),
                                 .end = 3,
                                 .out = out.data(),
                                 .stride = 64}),
                std::int64_t(at));
    }
}

TEST(Bags, SortIsStableForFewAndForMany) {
  for (const std::size_t count : {0, 1, 2, 511, 512, 5000, 70000})
    for (const std::int64_t rows : {std::int64_t(1), std::int64_t(2), std::int64_t(1000), std::int64_t(1) << 20,
                                    (std::int64_t(1) << 22) + 1, std::int64_t(1) << 32}) {
      std::vector<RowUse> uses, scratch;
      for (std::size_t k = 0; k < count; ++k)
        uses.push_back(row_use(std::uint32_t(random_bits()() % std::uint64_t(rows)), std::uint32_t(k)));
      auto expected = uses;
      std::stable_sort(expected.begin(), expected.end(), [](RowUse a, RowUse b) { return row_of(a) < row_of(b); });
      sort_by_row(uses, scratch, rows);
      ASSERT_EQ(uses, expected) << count << " uses of " << rows << " rows";
    }
}

// A table with all that a rule keeps for it.
template <class T>
struct Table {
  std::vector<T> rows, state, weights, weight_state;
  bool operator==(const Table&) const = default;
};

template <class T>
void test_step(TableRule rule, RowWeights kind, bool located) {
  constexpr std::int64_t kRows = 40, kSamples = 60;
  for (const std::int64_t width : kWidths) {
    Table<T> table{some<T>(kRows * width), some<T>(kRows * width), some<T>(kRows), some<T>(kRows)};
    for (T& value : table.state) value += T(0.6);
    for (T& value : table.weight_state) value += T(0.6);
    const auto gradients = some<T>(kSamples * width);
    const Batch batch(kSamples, kRows);
    std::vector<RowUse> uses, scratch;
    std::map<std::uint32_t, std::vector<double>> sums;
    for (std::int64_t s = 0; s < kSamples; ++s)
      for (std::int64_t k = batch.offsets[std::size_t(s)]; k < batch.offsets[std::size_t(s) + 1]; ++k) {
        const std::uint32_t row = std::uint32_t(batch.indices[std::size_t(k)]);
        if (row % 5 == 4) continue;  // some rows are not used at all
        uses.push_back(row_use(row, std::uint32_t(s)));
        auto& sum = sums[row];
        sum.resize(std::size_t(width));
        for (std::int64_t i = 0; i < width; ++i)
          sum[std::size_t(i)] += 2 * double(gradients[std::size_t(s * width + i)]);
      }
    sort_by_row(uses, scratch, kRows);
    std::vector<const T*> of_sample;
    for (std::int64_t s = 0; s < kSamples; ++s) of_sample.push_back(gradients.data() + s * width);

    std::vector<double> rows(table.rows.begin(), table.rows.end()), weights(table.weights.begin(), table.weights.end());
    for (auto& [row, sum] : sums) {
      const bool weighted = kind != RowWeights::kNone;
      double of_weight = 0, squares = 0;
      for (std::int64_t i = 0; i < width; ++i) {
        double& g = sum[std::size_t(i)];
        of_weight += g * rows[std::size_t(row * width + i)];
        if (weighted) g *= double(table.weights[row]);
        squares += g * g;
      }
      for (std::int64_t i = 0; i < width; ++i) {
        const double g = sum[std::size_t(i)];
        const std::size_t at = std::size_t(row * width + i);
        double divisor = 1;
        if (rule == TableRule::kAdagrad) divisor = std::sqrt(double(table.state[at]) + g * g) + 1e-10;
        if (rule == TableRule::kRowWiseAdagrad)
          divisor = std::sqrt(double(table.state[row]) + squares / double(width)) + 1e-10;
        rows[at] -= 0.3 * g / divisor;
      }
      double divisor = 1;
      if (rule != TableRule::kSgd) divisor = std::sqrt(double(table.weight_state[row]) + of_weight * of_weight) + 1e-10;
      if (kind == RowWeights::kLearned) weights[row] -= 0.3 * of_weight / divisor;
    }

    // What was located lies elsewhere, in reverse, with the accumulators behind.
    const auto run = [&](Table<T> from, void (*how)(const RowStep<T>&)) {
      RowStep<T> step{.rows = from.rows.data(),
                      .state = rule == TableRule::kSgd ? nullptr : from.state.data(),
                      .weights = kind == RowWeights::kNone ? nullptr : from.weights.data(),
                      .learned = kind == RowWeights::kLearned,
                      .weight_state = from.weight_state.data(),
                      .width = width,
                      .dim = width,
                      .uses = uses,
                      .gradients = of_sample.data(),
                      .rule = rule,
                      .lr = 0.3,
                      .eps = 1e-10,
                      .scale = 2};
      std::vector<T> elsewhere(std::size_t(kRows * 2 * width));
      std::vector<T*> places;
      const auto place = [&](std::uint32_t row) { return elsewhere.data() + (kRows - 1 - row) * 2 * width; };
      if (located) {
        for (std::uint32_t row = 0; row < kRows; ++row) {
          std::copy_n(from.rows.data() + row * width, width, place(row));
          if (rule == TableRule::kAdagrad) std::copy_n(from.state.data() + row * width, width, place(row) + width);
        }
        for (const auto& [row, sum] : sums) places.push_back(place(row));
        step.located = places;
        step.rows = nullptr;
        if (rule == TableRule::kAdagrad) step.state = nullptr;
      }
      how(step);
      if (located)
        for (std::uint32_t row = 0; row < kRows; ++row) std::copy_n(place(row), width, from.rows.data() + row * width);
      return from;
    };
    const Table<T> found = run(table, step_rows<T>);
    const double tolerance = sizeof(T) == 4 ? 3e-5 : 1e-12;
    for (std::size_t i = 0; i < rows.size(); ++i)
      ASSERT_NEAR(double(found.rows[i]), rows[i], tolerance) << "width " << width << ", number " << i;
    for (std::size_t i = 0; i < weights.size(); ++i)
      ASSERT_NEAR(double(found.weights[i]), weights[i], 20 * tolerance) << "width " << width << ", weight " << i;
#ifdef __x86_64__
    EXPECT_TRUE(run(table, kernels::generic::step_rows) == found) << "generic, width " << width;
    if (kHasAvx2) {
      EXPECT_TRUE(run(table, kernels::avx2::step_rows) == found) << "avx2, width " << width;
    }
    if (kHasAvx512) {
      EXPECT_TRUE(run(table, kernels::avx512::step_rows) == found) << "avx512, width " << width;
    }
#endif
  }
}

TEST(Bags, StepIsThePlainStep) {
  for (const TableRule rule : {TableRule::kSgd, TableRule::kAdagrad, TableRule::kRowWiseAdagrad})
    for (const RowWeights kind : {RowWeights::kNone, RowWeights::kFixed, RowWeights::kLearned}) {
      SCOPED_TRACE(testing::Message() << "rule " << int(rule) << ", weights " << int(kind));
      test_step<float>(rule, kind, false);
      test_step<double>(rule, kind, false);
      test_step<double>(rule, kind, true);
    }
}

TEST(MappedRows, KeepWhatWasWrittenWhateverLeavesTheCache) {
  constexpr std::int64_t kRows = 300, kWidth = 5;
  auto rows = MappedRows<float>::create(testing::TempDir(), kRows, kWidth, 16 * kWidth * sizeof(float)).or_throw();
  std::vector<float> expected(std::size_t(kRows * kWidth));
  for (int call = 0; call < 200; ++call) {
    std::vector<std::uint32_t> wanted;
    for (std::uint64_t k = random_bits()() % 60; k > 0; --k)  // mostly more than there are places
      wanted.push_back(std::uint32_t(random_bits()() % (call % 2 ? kRows : 12)));
    std::vector<float*> places(wanted.size());
    const bool change = call % 3 != 0;
    rows.locate(wanted, places.data(), change);
    for (std::size_t k = 0; k < wanted.size(); ++k)
      for (std::int64_t i = 0; i < kWidth; ++i) {
        float& value = expected[std::size_t(wanted[k] * kWidth + i)];
        ASSERT_EQ(places[k][i], value) << "row " << wanted[k] << " in call " << call;
        if (change) places[k][i] = value = float(call * 1000) + float(k);
      }
    const std::int64_t row = std::int64_t(random_bits()() % kRows);
    ASSERT_EQ(rows.find(row, true)[1], expected[std::size_t(row * kWidth + 1)]);
    rows.find(row, true)[1] = expected[std::size_t(row * kWidth + 1)] = float(call);
  }
  EXPECT_GT(rows.hits(), 0u);
  EXPECT_GT(rows.misses(), 0u);
}

TEST(MappedRows, RowsThatAreUsedMuchStay) {
  // Half of the places are enough for what is used always; the rest comes once.
  auto rows = MappedRows<float>::create(testing::TempDir(), 1'000'000, 4, 512 * 4 * sizeof(float)).or_throw();
  std::vector<float*> places(512);
  for (int call = 0; call < 100; ++call) {
    std::vector<std::uint32_t> wanted;
    for (std::uint32_t k = 0; k < 256; ++k) wanted.push_back(std::uint32_t(random_bits()() % 1'000'000));
    for (std::uint32_t k = 0; k < 256; ++k) wanted.push_back(k * 17);
    rows.locate(wanted, places.data(), false);
  }
  EXPECT_GT(rows.hits(), 100u * 256 * 90 / 100);
}

TEST(MappedRows, AFolderThatIsNotThereGetsASentence) {
  const auto rows = MappedRows<float>::create("/nowhere at all", 10, 4, 1000);
  ASSERT_FALSE(rows.ok());
  EXPECT_NE(to_string(rows.error()).find("cannot make a file for embedding tables in /nowhere at all"),
            std::string::npos)
      << to_string(rows.error());
}

}  // namespace
}  // namespace tutti
