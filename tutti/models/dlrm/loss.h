#pragma once
// The loss of a part of a batch and its gradient. A mean over the whole batch, whoever holds the samples: each rank
// divides by the number of samples of all, and what ranks make of it is added up.
#include <cstdint>
#include <span>

#include "tutti/models/dlrm/options.h"

namespace tutti::dlrm {

struct LossSums {
  double loss = 0;           // of the samples here, not divided
  std::int64_t correct = 0;  // whose rounded prediction is the target
  std::int64_t samples = 0;
};

// `predictions` are held within the threshold, in place, and then compared with `targets`. `gradient` (may be empty)
// gets d(sum of losses / divisor) / d(prediction), zero where the threshold held one. T: float or double.
template <class T>
LossSums loss_of(const LossOptions& options, std::span<T> predictions, std::span<const T> targets, double divisor,
                 std::span<T> gradient);

}  // namespace tutti::dlrm
