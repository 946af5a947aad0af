#include "tutti/comm/plans/hosts.h"

#include <gmock/gmock.h>

namespace tutti::comm {
namespace {

using testing::ElementsAre;

TEST(Hosts, AreNumberedByTheirFirstRanks) {
  const std::vector<int> where = {7, 3, 7, 9, 3, 7};
  const Hosts hosts(where);
  EXPECT_EQ(hosts.ranks(), 6);
  EXPECT_EQ(hosts.count(), 3);
  EXPECT_THAT(hosts.ranks_on(0), ElementsAre(0, 2, 5));
  EXPECT_THAT(hosts.ranks_on(1), ElementsAre(1, 4));
  EXPECT_EQ(hosts.host_of(3), 2);
  EXPECT_EQ(hosts.place_of(5), 2);
  EXPECT_EQ(hosts.fewest(), 1);
  EXPECT_EQ(hosts.most(), 3);
  EXPECT_TRUE(hosts.same_host(1, 4));
  EXPECT_FALSE(hosts.same_host(0, 1));
}

TEST(Hosts, OfSizes) {
  const std::vector<int> sizes = {2, 1, 3};
  const Hosts hosts = Hosts::of_sizes(sizes);
  EXPECT_EQ(hosts.ranks(), 6);
  EXPECT_THAT(hosts.ranks_on(2), ElementsAre(3, 4, 5));
}

}  // namespace
}  // namespace tutti::comm
