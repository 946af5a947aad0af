#pragma once
// Clicks that can be learned: data in the shape of Criteo's whose law is known, and with it the best that any model can
// do on them. That says whether a model learns, without a download.
//
// A sample is a pure function of (seed, its number): any rank makes any sample by itself, and a longer dataset begins
// with the shorter one. Its dense features are counts, its rows come by a law near Zipf's (row 0 most often), and
//   logit = bias + dense + tables + pairs:  dense   linear in log(count + 1)
//                                           tables  an effect of each row
//                                           pairs   the product of a hidden factor of the rows of two tables
// where each of the three has the standard deviation that is asked for. It is clicked with probability
// 1/(1+exp(-logit)).
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tutti/data/clicks/source.h"

namespace tutti {

// As many rows as the 26 categorical columns of Criteo's Kaggle data have, but at most `most` each.
std::vector<std::int64_t> criteo_rows(std::int64_t most);

struct PlantedClickOptions {
  std::vector<std::int64_t> rows = criteo_rows(50);  // of each table; learned from about a million samples
  int dense_features = 13;
  double click_rate = 0.25;
  double dense_strength = 0.6, table_strength = 1.0, pair_strength = 0.4;  // standard deviations, in the logit
  int pairs = 2;                                                           // table t with table t + tables/2
  std::uint64_t seed = 1;
};

class PlantedClicks {
 public:
  // kInvalidArgument: what makes no data, in words.
  static Result<PlantedClicks> create(PlantedClickOptions options);

  const PlantedClickOptions& options() const { return options_; }
  // The counts of a sample, one per dense feature. A third is 0: there Criteo's value is missing or none.
  void counts(std::uint64_t sample, std::span<std::int32_t> into) const;
  std::int64_t row(std::uint64_t sample, int table) const;
  struct Truth {
    double logit;
    double dense;  // the part of the logit that the dense features know: what ranks best without tables
    bool clicked;
  };
  Truth truth(std::uint64_t sample) const;

 private:
  explicit PlantedClicks(PlantedClickOptions options);
  struct Parts {
    double dense, tables, pairs;
  };
  Parts parts(std::uint64_t sample) const;
  void calibrate();

  PlantedClickOptions options_;
  std::vector<double> log_rows_;      // log(rows + 1)
  std::vector<double> dense_weight_;  // of each dense feature, in a fixed scale
  double dense_scale_ = 1, table_scale_ = 1, pair_scale_ = 1, bias_ = 0;
};

// What is the best on samples [first, first + samples). "Expected" is over all draws of the clicks, "drawn" for the
// clicks that these samples have.
struct PlantedBest {
  double auc = 0, auc_drawn = 0;              // of the true probabilities: no model has more, but by luck
  double dense_auc = 0, dense_auc_drawn = 0;  // of the best model that sees dense features only
  double log_loss = 0;                        // of the true probabilities
  double click_rate = 0;                      // drawn
};
PlantedBest best_on(const PlantedClicks& clicks, std::uint64_t first, std::uint64_t samples);

// Samples [first, first + samples) as batches. Train on one range and test on another.
Result<std::unique_ptr<ClickSource>> make_planted_source(PlantedClicks clicks, std::uint64_t first,
                                                         std::int64_t samples, std::int64_t batch_size);

}  // namespace tutti
