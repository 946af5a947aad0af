#pragma once
// Random clicks, number for number those of dlrm_s_pytorch.py --data-generation=random with the same seed.
#include <cstdint>
#include <memory>

#include "tutti/data/clicks/drawn.h"

namespace tutti {

enum class IndexDistribution { kUniform, kGaussian };

// The names in comments are the options of dlrm_s_pytorch.py.
struct RandomClickOptions : DrawnClickOptions {
  IndexDistribution distribution = IndexDistribution::kUniform;  // --rand-data-dist
  double minimum = 0, maximum = 1;  // --rand-data-min, --rand-data-max: rows, of gaussian only
  double mean = -1;                 // --rand-data-mu: -1 is the middle of minimum and maximum
  double deviation = 1;             // --rand-data-sigma
};

// A row that is drawn twice for a bag counts once, so bags may be smaller than asked for. kInvalidArgument: options
// that make no data, or rows that a table does not have.
Result<std::unique_ptr<ClickSource>> make_random_clicks(const RandomClickOptions& options);

}  // namespace tutti
