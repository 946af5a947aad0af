#pragma once
// How well a score ranks clicks, where the probability of each click is known.
#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

// The area under the ROC curve that `score` is expected to have when sample i is clicked with probability weight[i]: of
// all pairs of a clicked and an unclicked sample the share that is in the right order, ties counting half. Weights of
// 0 and 1 give the area for labels that are known. 0.5 where there are no such pairs. Sizes must be equal.
double expected_auc(std::span<const float> score, std::span<const float> weight);

}  // namespace tutti
