#include "tutti/rendezvous/assembly.h"

#include <gmock/gmock.h>

#include <thread>

#include "tutti/store/memory_store.h"
#include "tutti/version.h"

namespace tutti::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

RankInfo someone(int rank, int world_size) {
  return RankInfo{.rank = rank,
                  .world_size = world_size,
                  .world_size_source = "WORLD_SIZE in the environment",
                  .rank_source = "RANK in the environment",
                  .host = "node" + std::to_string(rank),
                  .machine = "m" + std::to_string(rank),
                  .pid = 100 + rank,
                  .local_host = "10.0.0.1",
                  .token = "t" + std::to_string(rank)};
}

class AssemblyOfThreads : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Assembly, AssemblyOfThreads, ::testing::Values(1, 2, 3, 7));

TEST_P(AssemblyOfThreads, GivesAllRanksToAllByRank) {
  MemoryStore store;
  std::vector<std::vector<RankInfo>> seen(static_cast<std::size_t>(GetParam()));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < GetParam(); ++rank)
      threads.emplace_back([&, rank] {
        auto world = assemble(store, someone(rank, GetParam()), Deadline::after(60s));
        if (world.ok()) seen[std::size_t(rank)] = *std::move(world);
      });
  }
  for (const auto& world : seen) {
    ASSERT_EQ(world.size(), std::size_t(GetParam()));
    for (int rank = 0; rank < GetParam(); ++rank) EXPECT_EQ(world[std::size_t(rank)], someone(rank, GetParam()));
  }
}

TEST(Assembly, TimeoutNamesTheMissing) {
  MemoryStore store;
  const auto world = assemble(store, someone(1, 5), Deadline::after(50ms));
  ASSERT_FALSE(world.ok());
  EXPECT_EQ(world.error().code, Code::kTimeout);
  EXPECT_EQ(world.error().detail, "ranks 0, 2-4 of 5 did not join");
  EXPECT_DOUBLE_EQ(world.error().limit, 0.05);
}

TEST(Assembly, ARankThatCameAndGaveUpIsReportedAsSuch) {
  MemoryStore store;
  EXPECT_EQ(assemble(store, someone(2, 3), Deadline::after(20ms)).status().error().detail,
            "ranks 0, 1 of 3 did not join");
  EXPECT_EQ(assemble(store, someone(0, 3), Deadline::after(20ms)).status().error().detail,
            "rank 1 of 3 did not join; rank 2 joined and timed out after 20 ms");
}

TEST(Assembly, RanksThatComeAfterOneGaveUpNameIt) {
  MemoryStore store;
  ASSERT_FALSE(assemble(store, someone(2, 3), Deadline::after(20ms)).ok());
  Result<std::vector<RankInfo>> waiting = std::vector<RankInfo>();
  std::jthread late([&] { waiting = assemble(store, someone(1, 3), Deadline::after(60s)); });
  ASSERT_TRUE(store.get("join/member/1", Deadline::after(60s)).ok());
  const auto first = assemble(store, someone(0, 3), Deadline::after(200ms));
  late.join();
  EXPECT_EQ(first.status().error().detail, "rank 2 joined and timed out after 20 ms");
  EXPECT_EQ(waiting.status().error().detail, "rank 2 joined and timed out after 20 ms");
}

TEST(Assembly, ARankThatGaveUpMayComeAgain) {
  MemoryStore store;
  ASSERT_FALSE(assemble(store, someone(1, 2), Deadline::after(20ms)).ok());
  RankInfo again = someone(1, 2);
  again.token = "t1-again";
  std::jthread other([&] { EXPECT_TRUE(assemble(store, again, Deadline::after(60s)).ok()); });
  EXPECT_TRUE(assemble(store, someone(0, 2), Deadline::after(60s)).ok());
}

TEST(Assembly, AnErrorReachesTheRanksThatWait) {
  MemoryStore store;
  Result<std::vector<RankInfo>> waiting = std::vector<RankInfo>();
  std::jthread first([&] { waiting = assemble(store, someone(1, 3), Deadline::after(60s)); });
  ASSERT_TRUE(store.get("join/world", Deadline::after(60s)).ok());
  const auto wrong = assemble(store, someone(2, 4), Deadline::after(60s));
  first.join();
  ASSERT_FALSE(wrong.ok());
  ASSERT_FALSE(waiting.ok());
  EXPECT_EQ(wrong.error().detail,
            "this is pid 102 on node2 and says the world has 4 ranks (WORLD_SIZE in the environment), but rank 1 (pid "
            "101 on node1) says 3 "
            "(WORLD_SIZE in the environment)");
  EXPECT_EQ(waiting.error().detail, wrong.error().detail);
  EXPECT_EQ(waiting.error().hint, wrong.error().hint);
  EXPECT_EQ(waiting.error().code, Code::kMismatch);
}

TEST(Assembly, NonsenseFromAnotherRankIsAnErrorNotACrash) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("{\"rank\":\"0\"}"),
        encode(someone(0, 2)).substr(5), std::string("{\"rank\":0,\"world_size\":2}"), std::string(100000, '[')})
    EXPECT_EQ(decode(text).status().error().code, Code::kCorrupt) << text.substr(0, 80);
  EXPECT_EQ(*decode(encode(someone(3, 4))), someone(3, 4));
  MemoryStore store;
  ASSERT_TRUE(store.set("join/world", "nonsense").ok());
  EXPECT_EQ(assemble(store, someone(0, 2), Deadline::after(1s)).status().error().code, Code::kCorrupt);
}

TEST(Assembly, AHostNameNeedNotBeUtf8) {
  RankInfo odd = someone(0, 1);
  odd.host = "n\xff";
  EXPECT_TRUE(decode(encode(odd)).ok());
}

TEST(Builds, AnotherReleaseOfTuttiIsRefusedByName) {
  std::vector<RankInfo> world = {someone(0, 2), someone(1, 2)};
  world[0].release = world[1].release = "0.1.0";
  EXPECT_TRUE(check_builds(world, false).ok());
  world[1].release = "0.2.0";
  EXPECT_THAT(
      to_string(check_builds(world, true).error()),
      HasSubstr("rank 0 (pid 100 on node0) was built with tutti 0.1.0, but rank 1 (pid 101 on node1) with 0.2.0 "
                "(hint: build the program with the same release on all machines)"));
  world[1].release = "";
  EXPECT_THAT(to_string(check_builds(world, true).error()), HasSubstr("on node1) with an older one"));
}

TEST(Builds, AnotherBuildOfTheProgramIsRefusedUnlessMeant) {
  std::vector<RankInfo> world = {someone(0, 2), someone(1, 2)};
  world[0].program = world[1].program = "train";
  world[0].build = "0123456789";
  world[1].build = "abcdef0123";
  EXPECT_THAT(
      to_string(check_builds(world, false).error()),
      HasSubstr("rank 0 (pid 100 on node0) and rank 1 (pid 101 on node1) run different builds of train (01234567 "
                "and abcdef01) (hint: copy the same file to all machines; if they are meant to differ, set "
                "TUTTI_MIXED_BUILDS=1)"));
  EXPECT_TRUE(check_builds(world, true).ok());
  world[1].program = "evaluate";
  EXPECT_TRUE(check_builds(world, false).ok()) << "another program, on purpose";
}

TEST(Builds, EveryArrivalSaysItsOwn) {
  const RankInfo me = decode(encode(rank_info_of(Identity{}, ""))).or_throw();
  EXPECT_EQ(me.release, TUTTI_VERSION);
  EXPECT_EQ(me.program, "rendezvous_test");
  EXPECT_EQ(me.build.size(), 40u) << "the linker's build id, a SHA-1";
  EXPECT_EQ(me.build, rank_info_of(Identity{}, "").build);
}

TEST(Addresses, LoopbackAcrossMachinesIsRefusedByName) {
  std::vector<RankInfo> world = {someone(0, 2), someone(1, 2)};
  EXPECT_TRUE(check_addresses(world).ok());
  world[1].local_host = "127.0.1.1";
  EXPECT_THAT(to_string(check_addresses(world).error()),
              HasSubstr("rank 1 (pid 101 on node1) would advertise the loopback address 127.0.1.1"));
  world[1].machine = world[0].machine;
  EXPECT_TRUE(check_addresses(world).ok()) << "on one machine loopback is fine";
  world[1].machine = "other";
  world[1].local_host = "";
  EXPECT_TRUE(check_addresses(world).ok()) << "nothing is advertised";
}

}  // namespace
}  // namespace tutti::rendezvous
