// The rank-sum statistic with weights. A pair (i, j) of different samples is one of a click and none with probability
// w_i (1 - w_j). In ascending order of the score all unclicked mass below a sample is what it is ranked above. The pair
// of a sample with itself has the mass w_i (1 - w_i), counts half as a tie would, and is taken out of both sums.
#include "tutti/data/clicks/auc.h"

#include <algorithm>
#include <numeric>

namespace tutti {

double expected_auc(std::span<const float> score, std::span<const float> weight) {
  std::vector<std::uint32_t> order(score.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return score[a] < score[b]; });
  double right = 0, clicked = 0, unclicked = 0, itself = 0;
  for (std::size_t begin = 0, end; begin < order.size(); begin = end) {
    double clicked_here = 0, unclicked_here = 0;
    for (end = begin; end < order.size() && score[order[end]] == score[order[begin]]; ++end) {
      const double w = weight[order[end]];
      clicked_here += w;
      unclicked_here += 1 - w;
      itself += w * (1 - w);
    }
    right += clicked_here * (unclicked + unclicked_here / 2);
    clicked += clicked_here;
    unclicked += unclicked_here;
  }
  const double pairs = clicked * unclicked - itself;
  return pairs > 0 ? (right - itself / 2) / pairs : 0.5;
}

}  // namespace tutti
