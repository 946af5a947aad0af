#include "tutti/launch/monitor/stragglers.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "tutti/launch/monitor/process_facts.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;

RankSeen rank(int number, bool in_call, double seconds) {
  RankSeen seen{.rank = number};
  seen.progress.pid = 100 + number;
  seen.progress.joined = seen.progress.recorded = true;
  seen.progress.read_at = std::int64_t(seconds * 1e9);
  const ProgressCall call{.sequence = 1,
                          .state = in_call ? FlightState::kStarted : FlightState::kCompleted,
                          .started = 1,
                          .ended = in_call ? 0 : 2};
  ProgressGroup world{.id = 1, .name = "world", .calls = 1, .newest = call};
  if (in_call) world.oldest = call;
  seen.progress.groups = {world};
  return seen;
}

// So many looks, in which rank 1 of three computes; what was found.
std::optional<Straggler> look(Stragglers& ranks, int looks, bool standing = false, double processor = 0.1) {
  std::optional<Straggler> found;
  for (int i = 0; i < looks; ++i) {
    std::vector<RankSeen> seen = {rank(0, true, 0.5 * i), rank(1, false, 0.5 * i), rank(2, true, 0.5 * i)};
    seen[1].processor = 0.5 * i * processor;
    if (const auto slow = ranks.look(seen, standing)) found = slow;
  }
  return found;
}

TEST(Stragglers, AreToldOnceAtTheEndOfAWindow) {
  Stragglers ranks;
  EXPECT_FALSE(look(ranks, Stragglers::kLooks - 1));
  const auto slow = look(ranks, 1);
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->rank, 1);
  EXPECT_EQ(slow->pid, 101);
  EXPECT_EQ(slow->looks, Stragglers::kLooks);
  EXPECT_FALSE(look(ranks, Stragglers::kLooks));
}

TEST(Stragglers, AreNotThoseThatStandStill) {
  Stragglers ranks;
  EXPECT_FALSE(look(ranks, Stragglers::kLooks, true));
  EXPECT_TRUE(look(ranks, Stragglers::kLooks));
}

TEST(Stragglers, WaitTheOthersDo) {
  Stragglers ranks;
  look(ranks, 5);
  EXPECT_EQ(ranks.waits(0), -1) << "too early";
  look(ranks, 30);
  EXPECT_GT(ranks.waits(0), 0.9);
  EXPECT_LT(ranks.waits(1), 0.1);
  EXPECT_EQ(ranks.waits(3), -1);
}

TEST(Stragglers, AreTheSentence) {
  Stragglers idle, busy;
  EXPECT_THAT(slow_words(*look(idle, Stragglers::kLooks)),
              AllOf(HasSubstr("rank 1 (pid 101) is slow: in 60 of 60 looks at it (29.5 s) all other ranks of this node "
                              "waited for it; it used 10 % of a core meanwhile, so it waits too: "),
                    HasSubstr("a quota (cpu.max)")));
  EXPECT_THAT(slow_words(*look(busy, Stragglers::kLooks, false, 1)),
              HasSubstr("it used 100 % of a core meanwhile: it has more to compute than the others, or a slower core; "
                        "`perf top -p 101` says what"));
}

TEST(ProcessorTime, IsReadBehindWhateverNameTheProgramHas) {
  EXPECT_EQ(parse_processor_seconds("7 (a) R b) S 1 7 7 0 -1 4194560 10 0 0 0 150 50 0 0 20 0 1 0", 100), 2.0);
  EXPECT_EQ(parse_processor_seconds("", 100), 0.0);
  while (processor_seconds(::getpid()) == 0) {
  }
  EXPECT_EQ(processor_seconds(-1), 0.0);
}

}  // namespace
}  // namespace tutti
