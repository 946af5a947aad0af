// The proof that a primary and its successor never both go on, tried out.
#include "tutti/launch/membership/vote.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr std::uint64_t kPrimary = 1, kSuccessor = 2;

TEST(Vote, OneVoiceARound) {
  Vote ballot;
  EXPECT_TRUE(ballot.give(3, kPrimary));
  EXPECT_TRUE(ballot.give(3, kPrimary)) << "said again";
  EXPECT_FALSE(ballot.give(3, kSuccessor));
  EXPECT_TRUE(ballot.give(4, kSuccessor));
  EXPECT_FALSE(ballot.give(4, kPrimary));
  EXPECT_FALSE(ballot.give(3, kPrimary)) << "an earlier round decides nothing any more";
}

TEST(Vote, OnlyMembersHaveAVoice) {
  const Electorate electorate{.round = 0, .members = {1, 2, 3}};
  EXPECT_EQ(electorate.count({}), 0U);
  EXPECT_EQ(electorate.count({1, 3, 7, 8}), 2U);
}

TEST(Vote, TheTieIsThePrimarys) {
  const Electorate two{.round = 0, .members = {1, 2}}, three{.round = 0, .members = {1, 2, 3}};
  EXPECT_TRUE(two.enough_for_primary(1));
  EXPECT_FALSE(two.enough_for_successor(1));
  EXPECT_FALSE(three.enough_for_primary(1));
  EXPECT_FALSE(three.enough_for_successor(1));
  EXPECT_TRUE(three.enough_for_primary(2));
  EXPECT_TRUE(three.enough_for_successor(2));
}

// Every way in which up to nine nodes can give their voices: to one, to the other, to nobody.
TEST(Vote, NeverBoth) {
  for (std::size_t nodes = 1; nodes <= 9; ++nodes) {
    Electorate electorate{.round = 0, .members = {}};
    std::size_t ways = 1;
    for (std::size_t node = 0; node < nodes; ++node) electorate.members.push_back(node), ways *= 3;
    for (std::size_t way = 0; way < ways; ++way) {
      std::set<std::uint64_t> voices[3];
      std::size_t rest = way;
      for (std::size_t node = 0; node < nodes; ++node, rest /= 3) {
        Vote ballot;
        const std::size_t choice = rest % 3;
        for (const std::uint64_t candidate : {kPrimary, kSuccessor})  // both ask, in one order or the other
          if (const auto first = choice == 1 ? candidate : kPrimary + kSuccessor - candidate;
              choice < 2 && ballot.give(0, first))
            voices[first].insert(node);
      }
      EXPECT_FALSE(electorate.enough_for_primary(electorate.count(voices[kPrimary])) &&
                   electorate.enough_for_successor(electorate.count(voices[kSuccessor])));
    }
  }
}

}  // namespace
}  // namespace tutti
