// The number of steps and the memory of plans. The simulator checks their results (simulator_test.cc).
#include "tutti/comm/plans/algorithms.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace tutti::comm {
namespace {

// The steps of all ranks but one run as far as they can. No rank may finish.
TEST(BarrierDissemination, NoRankLeavesWhileOneIsMissing) {
  for (const int size : {2, 3, 4, 7, 8}) {
    for (int missing = 0; missing < size; ++missing) {
      std::vector<Plan> plans;
      std::vector<std::size_t> done(size);
      std::map<std::pair<int, int>, int> signals;
      for (int r = 0; r < size; ++r) plans.push_back(barrier_dissemination({.rank = r, .size = size}));
      for (bool any = true; any;) {
        any = false;
        for (int r = 0; r < size; ++r) {
          if (r == missing || done[r] == plans[r].steps.size()) continue;
          const Step& step = plans[r].steps[done[r]];
          if (step.kind == StepKind::kSend)
            ++signals[{r, step.peer}];
          else if (signals[{step.peer, r}] == 0)
            continue;
          else
            --signals[{step.peer, r}];
          ++done[r];
          any = true;
        }
      }
      for (int r = 0; r < size; ++r)
        EXPECT_LT(done[r], plans[r].steps.size()) << "size " << size << " missing " << missing << " rank " << r;
    }
  }
}

TEST(Algorithms, PlansOfAThousandRanksHaveFewSteps) {
  EXPECT_EQ(all_reduce_recursive_doubling({.rank = 5, .size = 1024, .count = 1, .element = 4}).steps.size(),
            31u);  // 10 x 3 and a copy
  EXPECT_EQ(barrier_dissemination({.rank = 5, .size = 1000}).steps.size(), 20u);
  EXPECT_EQ(all_reduce_halving_doubling({.rank = 5, .size = 1024, .count = 1024, .element = 4}).steps.size(), 40u);
  // 10 rounds each way, each with one or two ranges to send and to receive.
  EXPECT_LE(all_reduce_bruck({.rank = 5, .size = 1000, .count = 1000, .element = 4}).steps.size(), 80u);
  EXPECT_EQ(all_gather_bruck({.rank = 0, .size = 1000, .count = 1, .element = 4}).steps.size(), 21u);
  EXPECT_EQ(all_reduce_ring({.rank = 5, .size = 1000, .count = 1000, .element = 4}).steps.size(), 4u * 999);
}

// Scratch memory does not grow with the vector. (comm/links/planned_calls.h splits the calls of the other algorithms.)
TEST(Algorithms, ScratchForLongVectorsIsBounded) {
  for (const int size : {2, 3, 8, 64}) {
    const Shape shape{.rank = 1, .size = size, .count = (std::size_t(1) << 30) / std::size_t(size), .element = 4};
    EXPECT_LE(reduce_scatter_ring(shape).scratch_bytes, 8u << 20) << size;
    Shape in_place = shape;
    in_place.in_place = true;
    EXPECT_LE(all_to_all_pairwise(in_place).scratch_bytes, 9u << 20) << size;
    EXPECT_EQ(all_to_all_pairwise(shape).scratch_bytes, 0u);
    EXPECT_EQ(all_reduce_ring(shape).scratch_bytes, 0u);
  }
}

}  // namespace
}  // namespace tutti::comm
