// Areas need all samples in the order of their scores. A sample sort distributes them: each rank sorts its samples and
// shows a few of them. Of those, size - 1 become borders, and each rank receives the samples between two borders, rank
// 0 the highest scores. Equal scores are never on two ranks. Then each rank goes through its range from the top, a
// group of equal scores at a time. It has the numbers of positives and negatives of the ranks above.
//
// With P positives and N negatives, and a group of p and n with N' negatives below it:
//   AUC = sum of p (N' + n / 2) / (P N)                (Mann and Whitney's U; twice of it is a whole number)
//   AP  = sum of p / P * (positives so far) / (samples so far), the group included
#include "tutti/metrics/classification.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tutti/base/text.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/collectives.h"

namespace tutti {
namespace {

constexpr std::size_t kShown = 256;                                 // of each rank, for the borders
constexpr std::int64_t kMostSamples = (std::int64_t(1) << 32) - 1;  // twice P N fits in 63 bits

template <class T>
struct Sample {
  T score;
  bool positive;
};

// What is added up over all samples, in any order.
struct Sums {
  std::int64_t samples = 0, positives = 0, right = 0, taken = 0, taken_right = 0;
  std::int64_t outside = 0;  // scores that are no probability
  double log_loss = 0;
};

bool several(const Group& group) { return group && group.size() > 1; }

template <class T>
Status check(std::span<const T> scores, std::span<const T> labels) {
  if (scores.size() != labels.size())
    return invalid_argument(fmt::format("metrics: {} scores and {} labels", scores.size(), labels.size()));
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (std::isnan(scores[i]))
      return invalid_argument(fmt::format("metrics: the score of sample {} is NaN", i),
                              "the model has diverged: check its loss, lower the learning rate");
    if (labels[i] != 0 && labels[i] != 1)
      return invalid_argument(fmt::format("metrics: the label of sample {} is {}, neither 0 nor 1", i, labels[i]));
  }
  return {};
}

template <class T>
Sums sums_of(std::span<const T> scores, std::span<const T> labels) {
  constexpr T kLeast = std::numeric_limits<T>::epsilon();
  Sums sums;
  sums.samples = std::int64_t(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const bool positive = labels[i] == 1;
    const T rounded = std::nearbyint(scores[i]);
    sums.positives += positive;
    sums.right += rounded == labels[i];
    sums.taken += rounded == 1;
    sums.taken_right += rounded == 1 && positive;
    sums.outside += !(scores[i] >= 0 && scores[i] <= 1);
    const T score = std::clamp(scores[i], kLeast, 1 - kLeast);
    sums.log_loss -= std::log(double(positive ? score : 1 - score));
  }
  return sums;
}

Sums over_ranks(const Group& group, Sums sums) {
  if (!several(group)) return sums;
  std::int64_t counts[] = {sums.samples, sums.positives, sums.right, sums.taken, sums.taken_right, sums.outside};
  all_reduce(group, std::span<std::int64_t>(counts));
  return {.samples = counts[0],
          .positives = counts[1],
          .right = counts[2],
          .taken = counts[3],
          .taken_right = counts[4],
          .outside = counts[5],
          .log_loss = all_reduce(group, sums.log_loss)};
}

// The scores at which the next rank begins: size - 1 of them, falling.
template <class T>
std::vector<T> borders_of(const Group& group, const std::vector<Sample<T>>& sorted) {
  const std::size_t ranks = std::size_t(group.size()), shown = std::min(kShown, sorted.size());
  std::vector<T> mine;
  for (std::size_t i = 0; i < shown; ++i) mine.push_back(sorted[(2 * i + 1) * sorted.size() / (2 * shown)].score);
  std::vector<std::int64_t> counts(ranks);
  const auto count = std::int64_t(shown);
  all_gather(group, std::span(&count, 1), std::span(counts));
  const std::vector<std::size_t> splits(counts.begin(), counts.end());
  std::vector<T> all(std::accumulate(splits.begin(), splits.end(), std::size_t(0)));
  all_gather_v(group, std::span<const T>(mine), std::span(all), splits);
  std::sort(all.begin(), all.end(), std::greater<T>());
  std::vector<T> borders;
  for (std::size_t r = 1; r < ranks; ++r) borders.push_back(all[r * all.size() / ranks]);
  return borders;
}

// From samples that each rank has sorted to sorted ranges of all of them.
template <class T>
std::vector<Sample<T>> deal_out(const Group& group, const std::vector<Sample<T>>& sorted) {
  const std::size_t ranks = std::size_t(group.size());
  std::vector<std::int64_t> out_counts(ranks), in_counts(ranks);
  std::size_t begin = 0, rank = 0;
  for (const T border : borders_of(group, sorted)) {
    // Samples with the border's score go to the later rank.
    const auto end = std::partition_point(sorted.begin() + std::ptrdiff_t(begin), sorted.end(),
                                          [&](const Sample<T>& sample) { return sample.score > border; });
    out_counts[rank++] = end - sorted.begin() - std::ptrdiff_t(begin);
    begin = std::size_t(end - sorted.begin());
  }
  out_counts[rank] = std::int64_t(sorted.size() - begin);
  all_to_all(group, std::span<const std::int64_t>(out_counts), std::span(in_counts));

  std::vector<T> scores;
  std::vector<std::uint8_t> labels;
  for (const Sample<T>& sample : sorted) {
    scores.push_back(sample.score);
    labels.push_back(sample.positive);
  }
  const std::vector<std::size_t> out_splits(out_counts.begin(), out_counts.end());
  const std::vector<std::size_t> in_splits(in_counts.begin(), in_counts.end());
  const std::size_t count = std::accumulate(in_splits.begin(), in_splits.end(), std::size_t(0));
  std::vector<T> my_scores(count);
  std::vector<std::uint8_t> my_labels(count);
  all_to_all(group, std::span<const T>(scores), out_splits, std::span(my_scores), in_splits);
  all_to_all(group, std::span<const std::uint8_t>(labels), out_splits, std::span(my_labels), in_splits);
  std::vector<Sample<T>> mine;
  for (std::size_t i = 0; i < count; ++i) mine.push_back({my_scores[i], my_labels[i] != 0});
  return mine;
}

struct Areas {
  std::int64_t twice_u = 0;
  double precision_sum = 0;  // AP times P
};

// `above`: positives and negatives with higher scores than any here.
template <class T>
Areas walk(const std::vector<Sample<T>>& sorted, std::int64_t positives_above, std::int64_t negatives_above,
           std::int64_t negatives) {
  Areas areas;
  std::int64_t positives = positives_above, passed = negatives_above;
  for (std::size_t i = 0; i < sorted.size();) {
    std::int64_t p = 0, n = 0;
    for (const T score = sorted[i].score; i < sorted.size() && sorted[i].score == score; ++i)
      ++(sorted[i].positive ? p : n);
    positives += p;
    passed += n;
    areas.twice_u += p * (2 * (negatives - passed) + n);
    areas.precision_sum += double(p) * double(positives) / double(positives + passed);
  }
  return areas;
}

template <class T>
Areas areas_of(const Group& group, std::span<const T> scores, std::span<const T> labels, const Sums& sums) {
  std::vector<Sample<T>> sorted;
  sorted.reserve(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) sorted.push_back({scores[i], labels[i] == 1});
  const auto higher = [](const Sample<T>& a, const Sample<T>& b) { return a.score > b.score; };
  std::sort(sorted.begin(), sorted.end(), higher);
  const std::int64_t negatives = sums.samples - sums.positives;
  if (!several(group)) return walk(sorted, 0, 0, negatives);

  sorted = deal_out(group, sorted);
  std::sort(sorted.begin(), sorted.end(), higher);
  const std::int64_t positives_here =
      std::count_if(sorted.begin(), sorted.end(), [](const Sample<T>& sample) { return sample.positive; });
  const std::int64_t here[] = {positives_here, std::int64_t(sorted.size()) - positives_here};
  std::vector<std::int64_t> everywhere(2 * std::size_t(group.size()));
  all_gather(group, std::span<const std::int64_t>(here), std::span(everywhere));
  std::int64_t positives_above = 0, negatives_above = 0;
  for (std::size_t r = 0; r < std::size_t(group.rank()); ++r) {
    positives_above += everywhere[2 * r];
    negatives_above += everywhere[2 * r + 1];
  }
  Areas areas = walk(sorted, positives_above, negatives_above, negatives);
  areas.twice_u = all_reduce(group, areas.twice_u);
  areas.precision_sum = all_reduce(group, areas.precision_sum);
  return areas;
}

double ratio(std::int64_t part, std::int64_t whole) { return whole == 0 ? 0 : double(part) / double(whole); }

ClassificationMetrics metrics_from(const Sums& sums, const Areas& areas) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const std::int64_t negatives = sums.samples - sums.positives;
  ClassificationMetrics metrics{.samples = sums.samples,
                                .positives = sums.positives,
                                .accuracy = ratio(sums.right, sums.samples),
                                .precision = ratio(sums.taken_right, sums.taken),
                                .recall = ratio(sums.taken_right, sums.positives),
                                .f1 = ratio(2 * sums.taken_right, sums.taken + sums.positives),
                                .roc_auc = double(areas.twice_u) / 2 / double(sums.positives) / double(negatives),
                                .average_precision = areas.precision_sum / double(sums.positives),
                                .log_loss = sums.log_loss / double(sums.samples)};
  std::vector<std::string> notes;
  if (sums.positives == 0 || negatives == 0) {
    metrics.roc_auc = kNone;
    notes.push_back(fmt::format("all {} samples have the label {}: there is no AUC{}", sums.samples,
                                negatives == 0 ? 1 : 0, negatives == 0 ? "" : " and no average precision"));
  }
  if (sums.positives == 0) metrics.average_precision = kNone;
  if (sums.outside > 0) {
    metrics.log_loss = kNone;
    notes.push_back(fmt::format("{} of the scores are outside of [0, 1]: there is no log loss", sums.outside));
  }
  metrics.note = join(notes, "; ");
  return metrics;
}

}  // namespace

template <class T>
Result<ClassificationMetrics> classification_metrics(const Group& group, std::span<const T> scores,
                                                     std::span<const T> labels) {
  try {
    TUTTI_TRY(agree(group, check(scores, labels)));
    const Sums sums = over_ranks(group, sums_of(scores, labels));
    if (sums.samples == 0) return invalid_argument("metrics: there are no samples");
    if (sums.samples > kMostSamples)
      return Error{.code = Code::kLimit,
                   .detail = fmt::format("metrics: {} samples; at most {} are taken", sums.samples, kMostSamples)};
    return metrics_from(sums, areas_of(group, scores, labels, sums));
  } catch (const Exception& error) {
    return error.error();
  }
}

template <class T>
Result<ClassificationMetrics> classification_metrics(std::span<const T> scores, std::span<const T> labels) {
  return classification_metrics(Group(), scores, labels);
}

template Result<ClassificationMetrics> classification_metrics(const Group&, std::span<const float>,
                                                              std::span<const float>);
template Result<ClassificationMetrics> classification_metrics(const Group&, std::span<const double>,
                                                              std::span<const double>);
template Result<ClassificationMetrics> classification_metrics(std::span<const float>, std::span<const float>);
template Result<ClassificationMetrics> classification_metrics(std::span<const double>, std::span<const double>);

}  // namespace tutti
