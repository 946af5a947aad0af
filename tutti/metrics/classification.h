#pragma once
// How well probabilities predict labels: the metrics of scikit-learn, by the same definitions. Over several ranks no
// rank holds all samples: each sorts the samples in its range of scores. Areas are computed from whole numbers, so they
// do not depend on how samples are distributed over ranks.
#include <cstdint>
#include <span>
#include <string>

#include "tutti/base/error.h"
#include "tutti/comm/group.h"

namespace tutti {

struct ClassificationMetrics {
  std::int64_t samples = 0, positives = 0;
  // A sample is taken for a positive if its score, rounded to the nearest whole number and halves to the even one, is
  // 1: 0.5 is none.
  double accuracy = 0;
  double precision = 0;          // 0 where none was taken for a positive
  double recall = 0;             // 0 where there are no positives
  double f1 = 0;                 // 0 where both are
  double roc_auc = 0;            // by the sum of ranks, ties count half; NaN where there is one class only
  double average_precision = 0;  // sum of (recall gained) * precision, over the different scores; NaN without positives
  // Mean of -log of the probability of the label, with scores cut to [e, 1 - e], e: the type's epsilon. NaN where a
  // score is outside of [0, 1].
  double log_loss = 0;
  // Why something is NaN, for people; empty where nothing is.
  std::string note;
};

// `labels` are 0 or 1. kInvalidArgument: another label, a score that is NaN, lengths that differ, no samples at all (of
// all ranks together); the sentence has the place. T: float or double.
template <class T>
Result<ClassificationMetrics> classification_metrics(std::span<const T> scores, std::span<const T> labels);
// Of the samples of all ranks, on every rank. Collective; a rank may have none. The errors of one rank reach all.
template <class T>
Result<ClassificationMetrics> classification_metrics(const Group& group, std::span<const T> scores,
                                                     std::span<const T> labels);

}  // namespace tutti
