// The groups of a mesh on real ranks.
#include "tutti/comm/mesh_groups.h"

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tutti/comm/collectives.h"

namespace tutti::test {
namespace {

TEST(MeshGroups, EveryCombinationOfAxesHasItsGroup) {
  const auto outcomes = run_threads(8, [](Group& world) {
    const MeshGroups groups = split(world, Mesh({{"pp", 2}, {"dp", 2}, {"tp", 2}})).or_throw();
    const int me = world.rank();
    check(groups.along("tp").global_ranks()[0] == me / 2 * 2, "tp groups are neighbours");
    check(groups.along("pp").global_ranks()[1] == me % 4 + 4, "pp has stride 4");
    check(groups.along("dp+tp").size() == 4, "dp+tp has four ranks");
    check(groups.along("tp+dp").name() == groups.along("dp+tp").name(), "in any order");
    check(groups.along("pp+dp+tp").name() == "world", "all axes are the world");
    check(all_reduce(groups.along("dp"), std::int32_t(me)) == 2 * (me / 4 * 4 + me % 2) + 2, "sum along dp");
  });
  EXPECT_EQ(describe(outcomes), "");
}

TEST(MeshGroups, AnAxisMayHaveADeadlineOfItsOwn) {
  const auto outcomes = run_threads(4, [](Group& world) {
    using std::chrono::seconds;
    const Mesh mesh({{"pp", 2}, {"dp", 2}, {"tp", 1}});
    const MeshGroups groups = split(world, mesh, {{"pp", seconds(77)}, {"dp+tp", seconds(78)}}).or_throw();
    check(groups.along("pp").timeout() == seconds(77) && groups.along("dp+tp").timeout() == seconds(78), "given");
    check(groups.along("dp").timeout() == world.timeout(), "not given");
    const auto refused = [&](const AxisTimeouts& timeouts, const std::string& words) {
      const auto made = split(world, mesh, timeouts);
      check(!made.ok() && to_string(made.error()) == "InvalidArgument: " + words,
            made.ok() ? "no error" : to_string(made.error()));
    };
    const std::string known = " (hint: groups that are made are pp, dp, pp+dp, tp, pp+tp, dp+tp)";
    refused({{"ep", seconds(1)}},
            "a timeout is given for \"ep\", but the mesh pp=2 x dp=2 x tp=1 has no such group" + known);
    refused({{"pp+dp+tp", seconds(1)}},
            "a timeout is given for \"pp+dp+tp\", which is group world itself, which keeps its deadline" + known);
    check(!split(world, mesh, {{"pp", seconds(-1)}}).ok(), "a negative one");
  });
  EXPECT_EQ(describe(outcomes), "");
}

TEST(MeshGroups, WrongSizesAndNamesAreSentences) {
  const auto outcomes = run_threads(2, [](Group& world) {
    const auto wrong = split(world, Mesh({{"dp", 3}}));
    check(!wrong.ok() &&
              to_string(wrong.error()) == "InvalidArgument: the mesh dp=3 is for 3 ranks, but group world has 2",
          to_string(wrong.error()));
    const MeshGroups groups = split(world, Mesh({{"dp", 2}})).or_throw();
    try {
      (void)groups.along("tp");
      check(false, "an unknown axis must throw");
    } catch (const Exception& e) {
      check(e.error().hint == "it has dp", e.error().hint);
    }
  });
  EXPECT_EQ(describe(outcomes), "");
}

}  // namespace
}  // namespace tutti::test
