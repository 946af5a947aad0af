// Ranks as processes, each with the memory of its "agent": that of this test, which outlives them.
#include "tutti/checkpoint/memory/memory_copies.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "tests/harness/checkpoints.h"
#include "tutti/checkpoint/checkpointer.h"
#include "tutti/comm/collectives.h"

namespace tutti {
namespace {

using test::Dealing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Copies : public ::testing::Test {
 protected:
  // One attempt: ranks[r] says on which node rank r is. Each throws to fail.
  std::string attempt(const std::vector<int>& ranks, const test::RankBody& body) {
    while (nodes_.size() <= std::size_t(*std::max_element(ranks.begin(), ranks.end())))
      nodes_.push_back(KeptMemory::create().or_throw());
    test::WorldOptions options;
    options.environment_of = [&](int rank) {
      const int node = ranks[std::size_t(rank)];
      return std::map<std::string, std::string>{
          {KeptMemory::kVariable, std::to_string(nodes_[std::size_t(node)].get())},
          {"TUTTI_HOST_ID", "node-" + std::to_string(node)}};
    };
    return test::describe(test::run_processes(int(ranks.size()), body, options));
  }
  // The node is lost, with its memory; another one comes in its place.
  void lose(int node) { nodes_[std::size_t(node)] = KeptMemory::create().or_throw(); }
  std::uint64_t memory_of(int node) const {
    struct stat facts {};
    return ::fstat(nodes_[std::size_t(node)].get(), &facts) == 0 ? std::uint64_t(facts.st_blocks) * 512 : 0;
  }
  // A byte of the tensors in the copy of that step changes.
  void corrupt(int node, std::int64_t step, std::uint32_t part) {
    const Shelves shelves(KeptMemory::open(nodes_[std::size_t(node)].get()).or_throw());
    for (const auto& [shelf, label] : shelves.whole()) {
      if (label.step != step || label.part != part) continue;
      char byte = 0;
      const auto at = off_t(Shelves::begin_of(shelf) + Shelves::kDataBegin + label.bytes / 2);
      ASSERT_EQ(::pread(shelves.memory().fd(), &byte, 1, at), 1);
      byte = char(byte ^ 4);
      ASSERT_EQ(::pwrite(shelves.memory().fd(), &byte, 1, at), 1);
    }
  }

  std::vector<Fd> nodes_;
};

// Takes copies of these steps, whose numbers the tensors hold.
void take(Group& world, MemoryCopies& copies, std::vector<int> steps, Dealing dealing = Dealing::kRows) {
  for (const int step : steps) {
    auto mine = test::rank_model(dealing, world.rank(), world.size(), float(step));
    copies.take(mine.boxes, {.step = step, .values = {{"lr", 0.5}}}).or_throw();
    for (auto& memory : mine.memory) std::fill(memory.begin(), memory.end(), -1.0f);
  }
  copies.wait();
}

// What the newest copy is of, checked element by element; -1: there is none.
std::int64_t restored(Group& world, MemoryCopies& copies, Dealing dealing = Dealing::kRows) {
  const auto wanted = test::rank_model(dealing, world.rank(), world.size());
  const auto found = copies.newest(wanted.boxes).or_throw();
  if (!found) return -1;
  const std::int64_t step = found->facts().step;
  const auto wrong = test::compare_model(*found, dealing, world.rank(), world.size(), float(step));
  test::check(wrong.empty(), wrong);
  test::check(std::get<double>(found->facts().values.at("lr")) == 0.5, "a value is lost");
  found->expect(test::expected_model()).or_throw();
  return step;
}

void expect_restored(Group& world, std::int64_t step, Dealing dealing = Dealing::kRows) {
  MemoryCopies copies(world, true);
  const auto found = restored(world, copies, dealing);
  test::check(found == step, "found step ", found, ", expected ", step);
}

TEST_F(Copies, OutliveTheRanks) {
  for (const Dealing dealing : {Dealing::kRows, Dealing::kReplicated, Dealing::kWhole}) {
    EXPECT_EQ(attempt({0, 0, 0},
                      [&](Group& world) {
                        MemoryCopies copies(world, false);
                        take(world, copies, {10, 20, 30}, dealing);
                        const auto stats = copies.stats();
                        test::check(stats.taken == 3 && stats.newest == 30 && stats.failed == 0, to_json(stats));
                        test::check(stats.sent_bytes == 0, "there is nobody to send it to");
                      }),
              "");
    EXPECT_EQ(attempt({0, 0, 0}, [&](Group& world) { expect_restored(world, 30, dealing); }), "");
  }
}

TEST_F(Copies, AreReadByAnyNumberOfRanks) {
  EXPECT_EQ(attempt({0, 0, 0},
                    [&](Group& world) {
                      MemoryCopies copies(world, false);
                      take(world, copies, {1});
                    }),
            "");
  EXPECT_EQ(attempt({0}, [&](Group& world) { expect_restored(world, 1, Dealing::kReplicated); }), "");
  EXPECT_EQ(attempt({0, 0, 1, 1}, [&](Group& world) { expect_restored(world, 1, Dealing::kColumns); }), "");
}

// The part of a lost node is on the next one; what is there is enough for all.
TEST_F(Copies, ALostNodeIsRestoredFromItsPeer) {
  const std::vector<int> ranks = {0, 0, 1, 1, 2};
  EXPECT_EQ(attempt(ranks,
                    [&](Group& world) {
                      MemoryCopies copies(world, false);
                      take(world, copies, {5, 6});
                      test::check(copies.stats().sent_bytes > 0, "nothing was sent");
                    }),
            "");
  for (const int node : {0, 1, 2}) {
    lose(node);
    EXPECT_EQ(attempt(ranks,
                      [&](Group& world) {
                        MemoryCopies copies(world, true);
                        test::check(restored(world, copies) == 6 + node, "not the newest");
                        take(world, copies, {7 + node});  // so that the next one may be lost
                      }),
              "")
        << "node " << node;
  }
  lose(0);
  lose(1);
  EXPECT_EQ(attempt(ranks, [&](Group& world) { expect_restored(world, -1); }), "") << "two of three are too many";
}

// A rank that dies in the middle of the copy of step 3.
TEST_F(Copies, OneThatIsTornIsNotUsed) {
  const auto gone = attempt({0, 0}, [&](Group& world) {
    MemoryCopies copies(world, false);
    take(world, copies, {1, 2});
    auto mine = test::rank_model(Dealing::kRows, world.rank(), 2, 3);
    const auto* const rows = static_cast<const std::byte*>(mine.boxes[0].data);
    if (world.rank() == 1) {
      mine.boxes[0].data = nullptr;
      mine.boxes[0].source = [=](std::uint64_t first, std::uint64_t count, std::byte* into) -> Status {
        if (first > 0) ::raise(SIGKILL);
        std::memcpy(into, rows, count * 256);
        return {};
      };
    }
    copies.take(mine.boxes, {.step = 3}).or_throw();
    copies.wait();
  });
  EXPECT_THAT(gone, HasSubstr("rank 1: Killed"));
  for (const auto& one : Shelves(KeptMemory::open(nodes_[0].get()).or_throw()).whole())
    EXPECT_TRUE(one.label.part == 0 || one.label.step == 2) << "that of step 1 was overwritten";
  EXPECT_EQ(attempt({0, 0}, [&](Group& world) { expect_restored(world, 2); }), "");
}

// One that cannot be taken leaves the one before, and the next goes well.
TEST_F(Copies, AFailedCopyIsReported) {
  EXPECT_EQ(attempt({0, 1},
                    [&](Group& world) {
                      MemoryCopies copies(world, false);
                      take(world, copies, {1});
                      auto mine = test::rank_model(Dealing::kRows, world.rank(), 2, 2);
                      if (world.rank() == 1) {
                        mine.boxes[0].data = nullptr;
                        mine.boxes[0].source = [](auto...) -> Status { return invalid_argument("no rows"); };
                      }
                      copies.take(mine.boxes, {.step = 2}).or_throw();
                      copies.wait();
                      test::check(copies.stats().failed == 1 && copies.stats().newest == 1, to_json(copies.stats()));
                    }),
            "");
  EXPECT_EQ(attempt({0, 1},
                    [&](Group& world) {
                      MemoryCopies copies(world, true);
                      test::check(restored(world, copies) == 1, "not the one before");
                      take(world, copies, {2, 3});
                      test::check(copies.stats().taken == 2, to_json(copies.stats()));
                    }),
            "");
  EXPECT_EQ(attempt({0, 1}, [&](Group& world) { expect_restored(world, 3); }), "");
}

TEST_F(Copies, AChangedByteIsFoundByItsDigest) {
  EXPECT_EQ(attempt({0, 1},
                    [&](Group& world) {
                      MemoryCopies copies(world, false);
                      take(world, copies, {1, 2});
                    }),
            "");
  corrupt(0, 2, 0);  // its neighbour has it still
  EXPECT_EQ(attempt({0, 1}, [&](Group& world) { expect_restored(world, 2); }), "");
  corrupt(1, 2, 0);
  EXPECT_EQ(attempt({0, 1}, [&](Group& world) { expect_restored(world, 1); }), "");
}

// A job that resumes after step 1 keeps that copy until there is a newer one; copies of larger worlds are removed then.
TEST_F(Copies, WhatIsNotNeededIsGivenBack) {
  EXPECT_EQ(attempt({0, 0, 0, 0},
                    [&](Group& world) {
                      MemoryCopies copies(world, false);
                      take(world, copies, {1});
                    }),
            "");
  const std::uint64_t of_four = memory_of(0);
  EXPECT_GT(of_four, 2u << 20);
  const auto go_on = [&](std::int64_t after, std::vector<int> steps) {
    EXPECT_EQ(attempt({0},
                      [&](Group& world) {
                        MemoryCopies copies(world, true);
                        test::check(restored(world, copies) == after, "not what was there");
                        take(world, copies, steps);
                      }),
              "");
    const Shelves shelves(KeptMemory::open(nodes_[0].get()).or_throw());
    std::vector<std::int64_t> there;
    for (const auto& one : shelves.whole()) there.push_back(one.label.step);
    std::sort(there.begin(), there.end());
    return there;
  };
  EXPECT_THAT(go_on(1, {11}), ElementsAre(1, 1, 1, 1, 11)) << "the next one may be torn";
  EXPECT_THAT(go_on(11, {31, 32, 33}), ElementsAre(32, 33));
  EXPECT_LT(memory_of(0), of_four * 3);
  // A run that begins anew begins with nothing.
  EXPECT_EQ(attempt({0}, [&](Group& world) { MemoryCopies copies(world, false); }), "");
  EXPECT_LT(memory_of(0), 1u << 20);
}

TEST_F(Copies, AreRefusedWithoutAnAgent) {
  const auto outcomes = test::run_processes(2, [](Group& world) { Checkpointer(world, {.memory_copy_interval = 1}); });
  for (const auto& outcome : outcomes)
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("copies of the state in memory are kept by the agent of tutti run, and "
                                               "this rank on host "),
                                     HasSubstr("start the job with `tutti run --max-restarts N`")));
}

}  // namespace
}  // namespace tutti
