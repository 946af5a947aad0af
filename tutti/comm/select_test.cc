#include "tutti/comm/select.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

Algorithm chosen(Kind kind, std::size_t count, std::vector<int> ranks_of_hosts, const std::string& forced = {}) {
  const Request request{.kind = kind, .dtype = DType::kF32, .count = count};
  return select_algorithm(request, Hosts::of_sizes(ranks_of_hosts), forced);
}

TEST(Select, ByBytesAndByWhereTheRanksAre) {
  EXPECT_EQ(chosen(Kind::kAllReduce, 100, {1, 1}), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(chosen(Kind::kAllReduce, 1 << 20, {1, 1, 1, 1, 1}), Algorithm::kRing) << "one rank a host: one level";
  EXPECT_EQ(chosen(Kind::kAllReduce, 1 << 20, {2, 2}), Algorithm::kRing);
  EXPECT_EQ(chosen(Kind::kAllReduce, 1 << 20, {1, 1, 1, 2}), Algorithm::kTwoLevel);
  EXPECT_EQ(chosen(Kind::kAllReduce, 100, {8, 8, 8, 8}), Algorithm::kRecursiveDoubling);
}

TEST(Select, TheForcedOneWhereItImplementsTheVerb) {
  EXPECT_EQ(chosen(Kind::kAllReduce, 100, {1, 1}, "bruck"), Algorithm::kBruck);
  EXPECT_EQ(chosen(Kind::kBroadcast, 100, {1, 1}, "bruck"), Algorithm::kBinomial);
  const std::size_t splits[] = {1, 2};
  const Request uneven{.kind = Kind::kAllToAll, .dtype = DType::kF32, .in_splits = splits, .out_splits = splits};
  EXPECT_EQ(select_algorithm(uneven, Hosts::of_sizes(std::vector<int>{1, 1}), "bruck"), Algorithm::kPairwise)
      << "Bruck's all_to_all is for even parts";
}

TEST(Select, APlanThatIsNot) {
  const auto plan = make_plan(Algorithm::kPairwise, Kind::kBroadcast, {.size = 2});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(to_string(plan.error()), "Unsupported: there is no pairwise for broadcast");
  EXPECT_FALSE(implements(Algorithm::kPairwise, Kind::kBroadcast));
  EXPECT_TRUE(implements(Algorithm::kTwoLevel, Kind::kAllGatherV));
}

TEST(Select, EveryVerbHasAPlanForEveryCall) {
  for (int kind = 0; kind < int(Kind::kSend); ++kind) {
    for (const std::size_t count : {std::size_t(0), std::size_t(1), std::size_t(1) << 30})
      EXPECT_TRUE(implements(chosen(Kind(kind), count, {3, 1, 2, 2}), Kind(kind))) << name(Kind(kind));
  }
}

}  // namespace
}  // namespace tutti
