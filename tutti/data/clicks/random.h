#pragma once
// Random clicks, number for number those of dlrm_s_pytorch.py --data-generation=random with the same seed.
#include <cstdint>
#include <memory>

#include "tutti/data/clicks/source.h"

namespace tutti {

enum class IndexDistribution { kUniform, kGaussian };

// The names in comments are the options of dlrm_s_pytorch.py.
struct RandomClickOptions {
  ClickShape shape;
  std::int64_t samples = 1;              // --data-size
  std::int64_t batch_size = 1;           // --mini-batch-size
  std::int64_t batches = 0;              // --num-batches: above 0 it is so many whole batches, whatever `samples`
  std::int64_t indices_per_lookup = 10;  // --num-indices-per-lookup: at most so many rows a bag ...
  bool fixed_indices = false;            // --num-indices-per-lookup-fixed: ... or as many draws, always
  bool round_targets = false;            // --round-targets: 0 or 1
  IndexDistribution distribution = IndexDistribution::kUniform;  // --rand-data-dist
  double minimum = 0, maximum = 1;  // --rand-data-min, --rand-data-max: rows, of gaussian only
  double mean = -1;                 // --rand-data-mu: -1 is the middle of minimum and maximum
  double deviation = 1;             // --rand-data-sigma
  std::uint32_t seed = 123;         // --numpy-rand-seed; the generator starts anew with batch 0
};

// A draw that comes twice in a bag counts once, so bags may be smaller than asked for. kInvalidArgument: options that
// make no data, or rows that a table does not have.
Result<std::unique_ptr<ClickSource>> make_random_clicks(RandomClickOptions options);

}  // namespace tutti
