#include "tutti/launch/affinity/rank_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

TEST(RankTable, ConsecutiveRanksWithTheSameShareAreOneLine) {
  EXPECT_THAT(rank_table({{"a", 0, 8, std::vector<std::string>(8, "any CPU")},
                          {"host-b", 8, 2, {"CPU 0, GPU 0", "CPU 1, GPU 1"}}}),
              ElementsAre("  ranks 0-7  on a       local ranks 0-7  any CPU",
                          "  rank 8     on host-b  local rank 0     CPU 0, GPU 0",
                          "  rank 9     on host-b  local rank 1     CPU 1, GPU 1"));
}

TEST(RankTable, ALongOneHasALineForEachNode) {
  NodeRows node{.host = "a", .first_rank = 0, .ranks = 40, .shares = {}};
  for (int rank = 0; rank < node.ranks; ++rank) node.shares.push_back("CPU " + std::to_string(rank));
  EXPECT_THAT(rank_table({node}), ElementsAre("  ranks 0-39  on a  local ranks 0-39  CPU 0 ... CPU 39"));
  EXPECT_THAT(rank_table({node}, 40), SizeIs(40));
}

Round round_of(const std::string& about, int node) {
  Round round;
  round.nodes = {{.host = "a", .address = "", .ranks = 1, .about = encode(NodeInfo{.shares = {"any CPU"}})},
                 {.host = "b", .address = "", .ranks = 3, .about = about}};
  round.node = node;
  return round;
}

TEST(RankTable, NodeZeroKnowsAllOthersThemselves) {
  const std::string about = encode(NodeInfo{.shares = {"CPU 0", "CPU 0", "CPU 1"}});
  EXPECT_THAT(rank_table(rows_of(round_of(about, 0))),
              ElementsAre("  rank 0     on a  local rank 0     any CPU", "  ranks 1-2  on b  local ranks 0-1  CPU 0",
                          "  rank 3     on b  local rank 2     CPU 1"));
  EXPECT_THAT(rank_table(rows_of(round_of(about, 1))), SizeIs(2));
}

TEST(RankTable, WhatAnotherNodeWroteIsNotTrusted) {
  for (const char* about : {"", "{", "[]", R"({"shares": 1})", R"({"shares": [["x", 4]]})",
                            R"({"shares": [["x", -1]]})", R"({"shares": [[1, 1]]})", R"({"shares": [["x"]]})"})
    EXPECT_EQ(rank_table(rows_of(round_of(about, 1))).front(), "  ranks 1-3  on b  local ranks 0-2") << about;
}

TEST(NodeInfo, ComesBackAsItWas) {
  const NodeInfo about{.shares = {"CPU 0", "CPU 0", "CPU 1"}, .run = "0123abcd"};
  EXPECT_EQ(parse_node_info(encode(about), 3), about);
  EXPECT_EQ(parse_node_info(encode(about), 2), (NodeInfo{.shares = {}, .run = "0123abcd"})) << "too many shares";
}

TEST(NodeInfo, AnInvalidRunIdIsIgnored) {
  for (const char* run : {R"("../x")", "7", R"("0123 4567")", R"("ABC")"})
    EXPECT_EQ(parse_node_info(R"({"shares": [], "run": )" + std::string(run) + "}", 1), NodeInfo()) << run;
  EXPECT_EQ(parse_node_info(encode(NodeInfo{.run = std::string(65, 'a')}), 1), NodeInfo());
}

}  // namespace
}  // namespace tutti::launch
