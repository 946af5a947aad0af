#include "tutti/comm/links/select.h"

#include <gmock/gmock.h>

namespace tutti::comm {
namespace {

using testing::HasSubstr;

Algorithm chosen(Kind kind, std::size_t count, std::vector<int> ranks_of_hosts, const std::string& forced = {},
                 const Network& network = {}) {
  const Request request{.kind = kind, .dtype = DType::kF32, .count = count};
  return Selector(Hosts::of_sizes(ranks_of_hosts), network, forced).algorithm(request);
}

TEST(Select, DependsOnBytesAndHosts) {
  EXPECT_EQ(chosen(Kind::kAllReduce, 100, {1, 1}), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(chosen(Kind::kAllReduce, 64 << 20, {1, 1}), Algorithm::kRing);
  EXPECT_NE(chosen(Kind::kAllReduce, 1 << 20, {1, 1, 1, 1, 1}), Algorithm::kTwoLevel) << "one rank a host: one level";
  EXPECT_EQ(chosen(Kind::kAllReduce, 16 << 10, {8, 8, 8, 8}), Algorithm::kTwoLevel);
  EXPECT_EQ(chosen(Kind::kBroadcast, 64 << 20, {1, 1, 1, 1}), Algorithm::kChain);
}

TEST(Select, TheSimplestIfAllTakeNoTime) {
  EXPECT_EQ(chosen(Kind::kAllReduce, 100, {1}), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(chosen(Kind::kAllToAll, 100, {1}), Algorithm::kPairwise);
}

TEST(Select, DependsOnTheNetwork) {
  Network slow_to_answer{.between = {.latency = 1e-3, .bandwidth = 12.5e9}};
  Network narrow{.between = {.latency = 1e-6, .bandwidth = 1e8}};
  const std::vector<int> hosts(8, 1);
  EXPECT_EQ(chosen(Kind::kAllReduce, 1000, hosts, {}, slow_to_answer), Algorithm::kMesh) << "two hops instead of three";
  EXPECT_EQ(chosen(Kind::kAllReduce, 10'000, hosts, {}, narrow), Algorithm::kRing);
}

TEST(Select, TheForcedOneIfItImplementsTheVerb) {
  EXPECT_EQ(chosen(Kind::kAllReduce, 100, {1, 1}, "bruck"), Algorithm::kBruck);
  EXPECT_EQ(chosen(Kind::kBroadcast, 100, {1, 1}, "bruck"), Algorithm::kBinomial);
  const std::size_t splits[] = {1, 2};
  const Request uneven{.kind = Kind::kAllToAll, .dtype = DType::kF32, .in_splits = splits, .out_splits = splits};
  EXPECT_EQ(Selector(Hosts::of_sizes(std::vector<int>{1, 1}), {}, "bruck").algorithm(uneven), Algorithm::kPairwise)
      << "Bruck's all_to_all is for even parts";
}

TEST(Select, DescribesItsChoices) {
  const std::string table = Selector(Hosts::of_sizes(std::vector<int>{1, 1}), {}, "").to_string();
  EXPECT_THAT(table, HasSubstr("all_reduce: recursive_doubling below "));
  EXPECT_THAT(table, HasSubstr(", ring\n"));
  EXPECT_THAT(table, HasSubstr("\nscatter_v: direct"));
}

TEST(Select, RejectsAPlanThatDoesNotExist) {
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
}  // namespace tutti::comm
