#include "tutti/planning/grid.h"

#include <gtest/gtest.h>

#include <functional>

#include "tutti/base/error.h"

namespace tutti {
namespace {

using Groups = std::vector<std::vector<int>>;

std::string sentence(const std::function<void()>& act) {
  try {
    act();
  } catch (const Exception& error) {
    return error.error().detail;
  }
  return "none";
}

// The 35 grids of Megatron-LM's test_parallel_state.py (test_rank_generator_for_tp_dp_pp), given as tensor, pipeline
// and world size, compared with the closed forms of the groups in the default order.
TEST(Grid, GroupsMatchMegatrons) {
  struct Case {
    int world, tensor, pipeline;
  };
  std::vector<Case> cases;
  for (const int tensor : {1, 2, 4, 8})
    for (const int pipeline : {1, 2, 4, 8, 16})
      for (const int data : {1, 3, 21, 84})
        if (tensor * pipeline * data <= 10752) cases.push_back({tensor * pipeline * data, tensor, pipeline});
  cases.push_back({10752, 8, 16});
  ASSERT_GE(cases.size(), 35u);
  for (const auto& [world, tensor, pipeline] : cases) {
    const Grid grid(world, {.tensor = tensor, .pipeline = pipeline});
    const int data = world / tensor / pipeline, block = world / pipeline;
    ASSERT_EQ(grid.data_size(), data);
    for (const int rank : {0, 1, world / 3, world / 2, world - 2, world - 1}) {
      if (rank < 0 || rank >= world) continue;
      std::vector<int> tp, pp, dp;
      for (int i = 0; i < tensor; ++i) tp.push_back(rank / tensor * tensor + i);
      for (int i = 0; i < pipeline; ++i) pp.push_back(rank % block + i * block);
      for (int i = 0; i < data; ++i) dp.push_back(rank / block * block + rank % tensor + i * tensor);
      EXPECT_EQ(grid.group_of(rank, "tp"), tp);
      EXPECT_EQ(grid.group_of(rank, "pp"), pp);
      EXPECT_EQ(grid.group_of(rank, "dp"), dp);
      EXPECT_EQ(grid.tensor_rank(rank), rank % tensor);
      EXPECT_EQ(grid.pipeline_rank(rank), rank / block);
      EXPECT_EQ(grid.data_rank(rank), rank % block / tensor);
    }
  }
}

TEST(Grid, SixteenRanksOfMegatronsExample) {
  const Grid grid(16, {.tensor = 2, .pipeline = 4});
  EXPECT_EQ(grid.groups("dp"), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(grid.groups("pp"), (Groups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  EXPECT_EQ(grid.groups("tp-pp"), (Groups{{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}}));
  EXPECT_EQ(grid.embedding_group(6), (std::vector{2, 14}));
  EXPECT_EQ(grid.next_stage(6), 10);
  EXPECT_EQ(grid.previous_stage(6), 2);
  EXPECT_EQ(grid.next_stage(14), 2);
  EXPECT_EQ(grid.previous_stage(2), 14);
  EXPECT_TRUE(grid.is_first_stage(3));
  EXPECT_TRUE(grid.is_last_stage(12));
  EXPECT_FALSE(grid.is_last_stage(11));
  EXPECT_EQ(grid.to_string(), "tp=2 x dp=2 x pp=4 (16 ranks)");
  EXPECT_EQ(Grid(1, {}).to_string(), "(1 rank)");
  EXPECT_EQ(Grid(1, {}).embedding_group(0), std::vector{0});
}

// The number of groups of a token is the number of ranks divided by the product of the sizes that it names. Each rank
// is in exactly one.
TEST(Grid, GroupsOfEveryTokenAndOrder) {
  for (const char* order : {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "dp-tp-pp-cp", "pp-dp-cp-tp-ep"}) {
    const Grid grid(24 * 3, {.tensor = 2, .pipeline = 4, .context = 3, .order = order});
    ASSERT_EQ(grid.data_size(), 3);
    for (const auto& [token, size] : {std::pair("tp", 2),
                                      {"pp", 4},
                                      {"cp", 3},
                                      {"dp", 3},
                                      {"dp-cp", 9},
                                      {"tp-pp", 8},
                                      {"tp-cp", 6},
                                      {"tp-dp-cp", 18},
                                      {"tp-cp-dp-pp", 72},
                                      {"ep", 1}}) {
      const auto groups = grid.groups(token);
      ASSERT_EQ(int(groups.size()), 72 / size) << order << " " << token;
      for (int rank = 0; rank < 72; ++rank) {
        ASSERT_EQ(groups[std::size_t(grid.group_index(rank, token))], grid.group_of(rank, token));
        ASSERT_EQ(int(grid.group_of(rank, token).size()), size);
      }
    }
  }
  // The leftmost axis varies fastest.
  EXPECT_EQ(Grid(8, {.tensor = 2, .order = "dp-tp"}).group_of(0, "dp"), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(Grid(8, {.tensor = 2, .pipeline = 2, .order = "tp-cp-ep-pp-dp"}).group_of(0, "pp"), (std::vector{0, 2}));
}

TEST(Grid, ImpossibleGridsAreExplained) {
  EXPECT_EQ(
      sentence([] { Grid(12, {.tensor = 4, .pipeline = 2}); }),
      "grid: 12 ranks cannot be laid out as tensor 4 x pipeline 2 x context 1 (= 8) x data: start 8 or 16 ranks, or "
      "choose sizes whose product divides 12");
  EXPECT_EQ(sentence([] { Grid(2, {.tensor = 4}); }),
            "grid: 2 ranks cannot be laid out as tensor 4 x pipeline 1 x context 1 (= 4) x data: start 4 ranks, or a "
            "multiple");
  EXPECT_EQ(sentence([] { Grid(4, {.tensor = 0}); }), "grid: tensor parallel size 0, expected 1 or more");
  EXPECT_EQ(sentence([] { Grid(4, {.order = "tp-xp"}); }),
            "grid: the order \"tp-xp\" has \"xp\", expected some of tp, cp, ep, dp, pp with - between");
  EXPECT_EQ(sentence([] { Grid(4, {.order = "tp-dp-tp"}); }), "grid: the order \"tp-dp-tp\" has \"tp\" twice");
  EXPECT_EQ(sentence([] { Grid(4, {.pipeline = 2, .order = "tp-dp"}); }),
            "grid: the order \"tp-dp\" leaves out \"pp\", whose size is 2: only an axis of size 1 may be missing");
  EXPECT_EQ(sentence([] { Grid(4, {}).groups("tp-tp"); }), "grid: the token \"tp-tp\" has \"tp\" twice");
}

}  // namespace
}  // namespace tutti
