#include "tutti/comm/agree.h"

#include <gmock/gmock.h>

#include <cerrno>

#include "tests/harness/ranks.h"

namespace tutti {
namespace {

using testing::HasSubstr;

void on_ranks(int size, const test::RankBody& body) {
  const auto outcomes = test::run_threads(size, body);
  for (int r = 0; r < size; ++r) EXPECT_EQ(outcomes[std::size_t(r)].error, "") << "rank " << r;
}

TEST(Agree, AllOk) {
  on_ranks(3, [](Group& world) { agree(world, {}).or_throw(); });
}

TEST(Agree, AllGetTheErrorOfTheLowestRank) {
  on_ranks(4, [](Group& world) {
    Status mine;
    if (world.rank() == 2) mine = system_error(ENOSPC, "cannot write x", "make room");
    if (world.rank() == 3) mine = invalid_argument("something else");
    const Status status = agree(world, mine);
    TUTTI_REQUIRE(!status.ok(), "no error");
    TUTTI_REQUIRE(status.error().code == Code::kSystem, "another code");
    const std::string text = to_string(status.error());
    TUTTI_REQUIRE(text == "System: rank 2: cannot write x: No space left on device (hint: make room)", text);
    TUTTI_REQUIRE(world.status().ok(), "the group has ended");
  });
}

TEST(AgreeOn, TheFirstValueThatDiffersIsNamedWithRanksAndBothValues) {
  on_ranks(4, [](Group& world) {
    const int rank = world.rank();
    const auto differ = [&](const std::vector<NamedValue>& values) {
      const Status status = agree_on(world, "the ranks differ", values, "give all the same");
      TUTTI_REQUIRE(world.status().ok(), "the group has ended");
      return status.ok() ? "agree" : status.error().detail + "|" + status.error().hint;
    };
    test::check(differ({{"lr", "0.1"}, {"batch", "64"}}) == "agree", "equal values");
    test::check(differ({}) == "agree", "no values");
    const std::string one = differ({{"lr", "0.1"}, {"batch", rank % 2 ? "32" : "64"}, {"seed", std::to_string(rank)}});
    test::check(one == "the ranks differ: batch is 64 on rank 0, but 32 on ranks 1, 3|give all the same", one);
    const std::string three = differ({{"seed", std::to_string(rank / 2 * rank)}});
    test::check(three == "the ranks differ: seed is 0 on rank 0, but 2 on rank 2|give all the same", three);
    std::vector<NamedValue> more{{"a", "1"}};
    if (rank == 3) more.push_back({"b", "2"});
    const std::string length = differ(more);
    test::check(length == "the ranks differ: b is nothing on rank 0, but 2 on rank 3|give all the same", length);
    const std::string name = differ({{rank == 1 ? "x" : "a", "1"}});
    test::check(name == "the ranks differ: a is 1 on rank 0, but x is 1 on rank 1|give all the same", name);
    // "ab" and "c" are not "a" and "bc".
    test::check(differ({{rank == 0 ? "ab" : "a", rank == 0 ? "c" : "bc"}}) != "agree", "where a name ends");
  });
  EXPECT_TRUE(agree_on(Group(), "nobody", {{"a", "1"}}).ok());
}

TEST(Agree, AnUnreadableErrorOfAPeerIsStillAnError) {
  EXPECT_EQ(to_string(parse_remote_error("no JSON", 3)), "Internal: rank 3 reported an error that cannot be read");
  const Error numbers = parse_remote_error(
      R"({"code":1e300,"detail":"d","hint":"","operation":"","errno":99999999999,"waited":1e300,"limit":-2,"cause":""})",
      3);
  EXPECT_EQ(to_string(numbers), "Internal: rank 3: d");
}

TEST(Agree, WithoutAGroup) {
  EXPECT_TRUE(agree(Group(), {}).ok());
  EXPECT_THAT(to_string(agree(Group(), invalid_argument("mine")).error()), HasSubstr("mine"));
}

TEST(Agree, AFailedGroupReportsItsError) {
  on_ranks(2, [](Group& world) {
    if (world.rank() == 0) world.abort(invalid_argument("ended"));
    const Status status = agree(world, {});
    TUTTI_REQUIRE(!status.ok(), "no error");
    TUTTI_REQUIRE(to_string(status.error()).find("ended") != std::string::npos, to_string(status.error()));
  });
}

}  // namespace
}  // namespace tutti
