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
