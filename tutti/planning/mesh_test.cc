#include "tutti/planning/mesh.h"

#include <gmock/gmock.h>

#include "tutti/base/error.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using Groups = std::vector<std::vector<int>>;

// Megatron's example: 16 ranks, tp 2, pp 4, dp 2.
const Mesh kMegatron({{"pp", 4}, {"dp", 2}, {"tp", 2}});

TEST(Mesh, SixteenRanksOfMegatronsExample) {
  EXPECT_EQ(kMegatron.groups("tp"), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(kMegatron.groups("dp"), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(kMegatron.groups("pp"), (Groups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
}

TEST(Mesh, GroupsAlongSeveralAxes) {
  const std::vector<std::string> model{"tp", "pp"}, blocks{"dp", "tp"}, all{"pp", "dp", "tp"}, none;
  EXPECT_EQ(kMegatron.groups(model), (Groups{{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}}));
  EXPECT_EQ(kMegatron.groups(blocks), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(kMegatron.groups(all).size(), 1u);
  EXPECT_EQ(kMegatron.groups(none).size(), 16u);
}

TEST(Mesh, GroupIndexCountsTheGroupsInOrder) {
  for (const std::vector<std::string>& along :
       {std::vector<std::string>{"tp"}, {"dp"}, {"pp"}, {"tp", "pp"}, {"dp", "pp"}, {}}) {
    const auto groups = kMegatron.groups(along);
    for (int rank = 0; rank < 16; ++rank) {
      EXPECT_EQ(groups[kMegatron.group_index(rank, along)], kMegatron.group_of(rank, along)) << rank;
    }
  }
}

TEST(Mesh, CoordinatesAndRanksAreInverse) {
  EXPECT_THAT(kMegatron.coordinates(13), ElementsAre(3, 0, 1));
  EXPECT_EQ(kMegatron.coordinate(13, "pp"), 3);
  for (int rank = 0; rank < 16; ++rank) EXPECT_EQ(kMegatron.rank_at(kMegatron.coordinates(rank)), rank);
}

TEST(Mesh, MistakesAreExplained) {
  const auto text = [](auto act) {
    try {
      act();
    } catch (const Exception& e) {
      return std::string(e.what());
    }
    return std::string("no exception");
  };
  EXPECT_EQ(text([] { kMegatron.groups("cp"); }), "InvalidArgument: mesh pp=4 x dp=2 x tp=2 has no axis \"cp\"");
  EXPECT_EQ(text([] { Mesh({{"dp", 0}}); }), "InvalidArgument: mesh: axis \"dp\" has size 0, expected 1 or more");
  EXPECT_EQ(text([] { Mesh({{"dp", 2}, {"dp", 2}}); }), "InvalidArgument: mesh: two axes are named \"dp\"");
  EXPECT_EQ(text([] { kMegatron.coordinates(16); }),
            "InvalidArgument: mesh pp=4 x dp=2 x tp=2: rank 16 is not among its 16 ranks");
  EXPECT_EQ(text([] { Mesh({{"a", 1 << 20}, {"b", 1 << 20}}); }).substr(0, 15), "InvalidArgument");
  EXPECT_THROW(kMegatron.group_of(0, std::vector<std::string>{"tp", "tp"}), Exception);
  EXPECT_THROW(kMegatron.rank_at(std::vector<int>{0, 2, 0}), Exception);
}

}  // namespace
}  // namespace tutti
