// Golden values are those of scikit-learn 1.9 (accuracy_score, precision_score, recall_score, f1_score of numpy's
// round(); roc_auc_score, average_precision_score, log_loss) for the same samples.
#include "tutti/metrics/classification.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/harness/ranks.h"

namespace tutti {
namespace {

using testing::HasSubstr;

template <class T>
struct Samples {
  std::vector<T> scores, labels;
};

template <class T>
Result<ClassificationMetrics> metrics_of(const Samples<T>& samples) {
  return classification_metrics(std::span<const T>(samples.scores), std::span<const T>(samples.labels));
}

// x = (1664525 x + 1013904223) mod 2^32 from 12345 on; a number is x / 256, whole, over 2^24. The score is one (on a
// grid of `steps` if there are any), the label whether another is below its square.
template <class T>
Samples<T> random_samples(int count, int steps) {
  std::uint32_t x = 12345;
  const auto next = [&] {
    x = x * 1664525u + 1013904223u;
    return double(x >> 8) / (1 << 24);
  };
  Samples<T> samples;
  for (int i = 0; i < count; ++i) {
    double score = next();
    if (steps) score = std::floor(score * steps) / steps;
    samples.scores.push_back(T(score));
    samples.labels.push_back(next() < score * score ? 1 : 0);
  }
  return samples;
}

template <class T>
Samples<T> by_hand() {
  return {{T(0.1), T(0.4), T(0.35), T(0.8), T(0.5), T(0.5), T(0.5), T(0.9), 0, 1, T(0.35), T(0.6)},
          {0, 0, 1, 1, 0, 1, 1, 1, 0, 0, 0, 1}};
}

struct Golden {
  std::int64_t samples, positives;
  double accuracy, precision, recall, f1, roc_auc, average_precision, log_loss;
};

void expect_golden(const Result<ClassificationMetrics>& found, const Golden& golden, double tolerance = 1e-12) {
  ASSERT_TRUE(found.ok()) << to_string(found.error());
  EXPECT_EQ(found->samples, golden.samples);
  EXPECT_EQ(found->positives, golden.positives);
  EXPECT_NEAR(found->accuracy, golden.accuracy, 1e-15);
  EXPECT_NEAR(found->precision, golden.precision, 1e-15);
  EXPECT_NEAR(found->recall, golden.recall, 1e-15);
  EXPECT_NEAR(found->f1, golden.f1, 1e-15);
  EXPECT_NEAR(found->roc_auc, golden.roc_auc, 1e-14);
  EXPECT_NEAR(found->average_precision, golden.average_precision, 1e-14);
  EXPECT_NEAR(found->log_loss, golden.log_loss, tolerance);
  EXPECT_EQ(found->note, "");
}

TEST(Classification, AsScikitLearn) {
  expect_golden(metrics_of(by_hand<double>()),
                {12, 6, 0.6666666666666666, 0.75, 0.5, 0.6, 0.7361111111111112, 0.6575396825396825, 3.42160131679583});
  expect_golden(metrics_of(random_samples<double>(1000, 0)),
                {1000, 343, 0.744, 0.5861386138613861, 0.8629737609329446, 0.6981132075471698, 0.8686981641971858,
                 0.7837587007957284, 0.5075996329385222});
  expect_golden(metrics_of(random_samples<double>(1000, 64)),
                {1000, 331, 0.743, 0.5761316872427984, 0.8459214501510574, 0.6854345165238678, 0.8641883317753422,
                 0.7429354384221387, 0.5159874445767841});
  expect_golden(metrics_of(random_samples<double>(1000, 3)),
                {1000, 199, 0.785, 0.4751552795031056, 0.7688442211055276, 0.5873320537428023, 0.8251024159499118,
                 0.43296744959727396, 0.42474291733394});
}

TEST(Classification, InSinglePrecision) {
  expect_golden(metrics_of(by_hand<float>()),
                {12, 6, 0.6666666666666666, 0.75, 0.5, 0.6, 0.7361111111111112, 0.6575396825396825, 1.7464956045150757},
                1e-6);
  expect_golden(metrics_of(random_samples<float>(1000, 0)),
                {1000, 343, 0.744, 0.5861386138613861, 0.8629737609329446, 0.6981132075471698, 0.8686981641971858,
                 0.7837587007957284, 0.5075996518135071},
                1e-6);
}

TEST(Classification, AHalfIsNoPositive) {
  const double above = std::nextafter(0.5, 1);
  const auto metrics = metrics_of<double>({{0.5, above}, {1, 1}});
  EXPECT_EQ(metrics->recall, 0.5);
  EXPECT_EQ(metrics->accuracy, 0.5);
}

TEST(Classification, NothingTakenForAPositive) {
  const auto metrics = metrics_of<double>({{0.4, 0.3, 0.2}, {1, 1, 0}});
  EXPECT_EQ(metrics->precision, 0);
  EXPECT_EQ(metrics->recall, 0);
  EXPECT_EQ(metrics->f1, 0);
  EXPECT_EQ(metrics->roc_auc, 1);
  EXPECT_EQ(metrics->average_precision, 1);
}

TEST(Classification, OneClassOnlyHasNoAucAndSaysSo) {
  const auto negatives = metrics_of<double>({{0.4, 0.9}, {0, 0}});
  EXPECT_TRUE(std::isnan(negatives->roc_auc));
  EXPECT_TRUE(std::isnan(negatives->average_precision));
  EXPECT_EQ(negatives->accuracy, 0.5);
  EXPECT_EQ(negatives->note, "all 2 samples have the label 0: there is no AUC and no average precision");
  const auto positives = metrics_of<double>({{0.4, 0.9}, {1, 1}});
  EXPECT_TRUE(std::isnan(positives->roc_auc));
  EXPECT_EQ(positives->average_precision, 1);
  EXPECT_EQ(positives->note, "all 2 samples have the label 1: there is no AUC");
}

TEST(Classification, ScoresThatAreNoProbabilities) {
  const auto metrics = metrics_of<double>({{-3, 7, 0.25, INFINITY}, {0, 1, 0, 1}});
  EXPECT_EQ(metrics->roc_auc, 1);
  EXPECT_TRUE(std::isnan(metrics->log_loss));
  EXPECT_EQ(metrics->note, "3 of the scores are outside of [0, 1]: there is no log loss");
}

TEST(Classification, WhatCannotBeJudgedIsRefused) {
  const auto refusal = [](const Samples<double>& samples) { return to_string(metrics_of(samples).error()); };
  EXPECT_THAT(refusal({{0.5, std::nan(""), 0.5}, {0, 1, 1}}),
              HasSubstr("metrics: the score of sample 1 is NaN (hint: the model has diverged"));
  EXPECT_THAT(refusal({{0.5, 0.5}, {0, 0.25}}), HasSubstr("the label of sample 1 is 0.25, neither 0 nor 1"));
  EXPECT_THAT(refusal({{0.5}, {0, 1}}), HasSubstr("1 scores and 2 labels"));
  EXPECT_THAT(refusal({}), HasSubstr("there are no samples"));
}

// The sample s lies on the rank that `where` says.
void expect_same_on_ranks(int ranks, const Samples<double>& samples, const std::function<int(int)>& where) {
  const auto alone = metrics_of(samples);
  ASSERT_TRUE(alone.ok());
  const auto outcomes = test::run_threads(ranks, [&](Group& world) {
    Samples<double> mine;
    for (int s = 0; s < int(samples.scores.size()); ++s)
      if (where(s) == world.rank()) {
        mine.scores.push_back(samples.scores[std::size_t(s)]);
        mine.labels.push_back(samples.labels[std::size_t(s)]);
      }
    const auto found =
        classification_metrics(world, std::span<const double>(mine.scores), std::span<const double>(mine.labels));
    found.status().or_throw();
    TUTTI_REQUIRE(found->samples == alone->samples && found->positives == alone->positives, "other counts");
    TUTTI_REQUIRE(found->accuracy == alone->accuracy && found->precision == alone->precision &&
                      found->recall == alone->recall && found->f1 == alone->f1,
                  "other figures at 0.5");
    TUTTI_REQUIRE(found->roc_auc == alone->roc_auc, "AUC ", found->roc_auc, " and ", alone->roc_auc);
    TUTTI_REQUIRE(std::abs(found->average_precision - alone->average_precision) < 1e-14, "another AP");
    TUTTI_REQUIRE(std::abs(found->log_loss - alone->log_loss) < 1e-12, "another log loss");
  });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.error, "") << ranks << " ranks";
}

TEST(Classification, RanksTogetherFindTheSame) {
  for (const int steps : {0, 3, 64}) {
    const auto samples = random_samples<double>(1001, steps);
    for (const int ranks : {2, 3, 4, 7}) {
      expect_same_on_ranks(ranks, samples, [&](int s) { return s % ranks; });
      expect_same_on_ranks(ranks, samples, [&](int s) { return s < 900 ? 0 : ranks - 1; });
    }
  }
}

TEST(Classification, FewSamplesOnManyRanks) {
  for (const int count : {2, 3, 5})
    for (const int home : {0, 3}) {
      Samples<double> samples = by_hand<double>();
      samples.scores.resize(std::size_t(count));
      samples.labels.resize(std::size_t(count));
      samples.labels[0] = 1;
      expect_same_on_ranks(4, samples, [&](int) { return home; });
    }
  Samples<double> all_equal{std::vector<double>(100, 0.25), std::vector<double>(100, 0)};
  all_equal.labels[7] = 1;
  EXPECT_EQ(metrics_of(all_equal)->roc_auc, 0.5);
  expect_same_on_ranks(3, all_equal, [](int s) { return s % 3; });
}

TEST(Classification, TheErrorOfOneRankReachesAll) {
  const auto outcomes = test::run_threads(3, [](Group& world) {
    const std::vector<float> scores = {0.5f, world.rank() == 1 ? NAN : 0.25f}, labels = {0, 1};
    const auto found = classification_metrics(world, std::span<const float>(scores), std::span<const float>(labels));
    TUTTI_REQUIRE(!found.ok(), "taken");
    TUTTI_REQUIRE(found.error().detail == "rank 1: metrics: the score of sample 1 is NaN", found.error().detail);
    const auto none = classification_metrics(world, std::span<const float>(), std::span<const float>());
    TUTTI_REQUIRE(!none.ok() && none.error().detail == "metrics: there are no samples", "samples");
  });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.error, "");
}

}  // namespace
}  // namespace tutti
