#include "tutti/checkpoint/memory/neighbours.h"

#include <gmock/gmock.h>

namespace tutti {
namespace {

using ::testing::ElementsAre;

TEST(PeerStatus, OneNodeHasNone) {
  const auto made = neighbours_of({{"a", "m"}, {"a", "m"}});
  EXPECT_THAT(made.keeper_of, ElementsAre(0, 0));
  EXPECT_THAT(made.receiver_of, ElementsAre(-1, -1));
  EXPECT_EQ(made.local_rank(1), 1);
  EXPECT_TRUE(made.leads(0));
  EXPECT_FALSE(made.leads(1));
}

TEST(PeerStatus, NodesStandInARing) {
  const auto made = neighbours_of({{"a", "m"}, {"a", "m"}, {"b", "n"}, {"b", "n"}, {"c", "o"}, {"c", "o"}});
  EXPECT_THAT(made.receiver_of, ElementsAre(2, 3, 4, 5, 0, 1));
  EXPECT_THAT(made.guests_of(0), ElementsAre(4));
}

// Two agents on machine m: both give their copies to the one on n.
TEST(PeerStatus, AnotherMachineComesFirst) {
  const auto made = neighbours_of({{"a", "m"}, {"b", "m"}, {"c", "n"}});
  EXPECT_THAT(made.receiver_of, ElementsAre(2, 2, 0));
  EXPECT_THAT(made.guests_of(2), ElementsAre(0, 1));
  EXPECT_THAT(neighbours_of({{"a", "m"}, {"b", "m"}}).receiver_of, ElementsAre(1, 0)) << "else another agent";
}

TEST(PeerStatus, OnUnevenNodesARankReceivesFromSeveralRanks) {
  const auto made = neighbours_of({{"a", "m"}, {"b", "n"}, {"a", "m"}, {"a", "m"}, {"b", "n"}});
  EXPECT_THAT(made.ranks_of, ElementsAre(ElementsAre(0, 2, 3), ElementsAre(1, 4)));
  EXPECT_THAT(made.receiver_of, ElementsAre(1, 0, 4, 1, 2));
  EXPECT_THAT(made.guests_of(1), ElementsAre(0, 3));
}

}  // namespace
}  // namespace tutti
