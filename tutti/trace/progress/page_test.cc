#include "tutti/trace/progress/page.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tutti/trace/flight/recorder.h"
#include "tutti/trace/progress/reader.h"

namespace tutti::trace {
namespace {

using testing::HasSubstr;
using testing::IsNull;
using testing::NotNull;
using testing::SizeIs;

class Page : public testing::Test {
 protected:
  const Fd fd_ = ProgressPage::create().or_throw();
  std::unique_ptr<ProgressPage> page_ = ProgressPage::open(fd_.get()).or_throw();
  const ProgressReader reader_{fd_.get()};
  const FlightClock clock_;

  std::shared_ptr<FlightTrack> add(std::uint64_t id, const std::string& name, std::size_t entries = 64) {
    const FlightGroup group{.id = id, .name = name, .rank = 1, .global_ranks = {4, 5, 6}};
    auto place = page_->add(group, FlightRing::bytes_for(entries));
    return place ? std::make_shared<FlightTrack>(group, std::move(place), clock_) : nullptr;
  }
};

TEST_F(Page, SaysNothingBeforeItsRankDoes) {
  EXPECT_FALSE(reader_.read().called);
  page_->set_called();  // it may wait for a store before it knows who it is
  const RankProgress p = reader_.read();
  EXPECT_TRUE(p.called);
  EXPECT_EQ(p.pid, 0);
  EXPECT_EQ(p.steps, 0u);
  EXPECT_THAT(p.current(), IsNull());
}

TEST_F(Page, HasTheRank) {
  page_->join(3, 8);
  RankProgress p = reader_.read();
  EXPECT_EQ(p.pid, ::getpid());
  EXPECT_EQ(p.rank, 3);
  EXPECT_EQ(p.world_size, 8);
  EXPECT_FALSE(p.joined);
  page_->set_joined();
  EXPECT_TRUE(reader_.read().joined);
  EXPECT_EQ(reader_.read().lost, -1);
  EXPECT_FALSE(reader_.read().echoes);
  page_->set_lost(0);
  page_->set_echoes();
  EXPECT_EQ(reader_.read().lost, 0);
  EXPECT_TRUE(reader_.read().echoes);
}

TEST_F(Page, CountsSteps) {
  page_->join(0, 1);
  EXPECT_EQ(page_->step(), -1);
  page_->begin_step(100);
  page_->begin_step(101);
  const RankProgress p = reader_.read();
  EXPECT_EQ(p.step, 101);
  EXPECT_EQ(p.steps, 2u);
  EXPECT_GT(p.step_began, 0);
  EXPECT_LE(p.step_began, p.read_at);
  EXPECT_EQ(page_->step(), 101);
}

TEST_F(Page, CarriesARequestToStop) {
  EXPECT_EQ(page_->stop_request(), 0);
  ASSERT_TRUE(reader_.request_stop(SIGTERM).ok());
  EXPECT_EQ(page_->stop_request(), SIGTERM);
  page_->join(0, 1);  // a request may come before the rank has joined
  EXPECT_EQ(page_->stop_request(), SIGTERM);
}

TEST_F(Page, KeepsAMessageAndCutsALongOne) {
  page_->join(0, 2);
  page_->set_message("it went wrong");
  EXPECT_EQ(reader_.read().message, "it went wrong");
  page_->set_message(std::string(1 << 16, 'x'));
  EXPECT_THAT(reader_.read().message, SizeIs(ProgressLayout::kMessage - 1));
}

TEST_F(Page, HasAnAlarmUntilItIsCleared) {
  page_->join(0, 2);
  page_->set_alarm("the disk is full");
  EXPECT_EQ(reader_.read_brief().alarm, "the disk is full");
  page_->set_alarm(std::string(1 << 16, 'x'));
  EXPECT_THAT(reader_.read().alarm, SizeIs(ProgressLayout::kAlarm - 1));
  page_->set_alarm("");
  EXPECT_EQ(reader_.read().alarm, "");
}

TEST_F(Page, ShowsTheCallUnderWayAndTheOneThatEnded) {
  page_->join(0, 3);
  const auto track = add(7, "dp");
  ASSERT_THAT(track, NotNull());
  track->collectives.started(1, {.shape = 5});
  track->collectives.ended(1, true);
  const ProgressGroup* group = nullptr;
  RankProgress p = reader_.read();
  ASSERT_THAT(p.current(&group), NotNull());
  EXPECT_TRUE(p.current()->is_over());
  EXPECT_EQ(group->name, "dp");
  EXPECT_EQ(group->rank, 1);
  EXPECT_EQ(group->size, 3);
  EXPECT_EQ(group->id, 7u);
  track->collectives.scheduled(2, {.shape = 6});
  track->collectives.scheduled(3, {.shape = 7});
  p = reader_.read();
  ASSERT_THAT(p.current(), NotNull());
  EXPECT_EQ(p.current()->sequence, 2u);
  EXPECT_EQ(p.current()->call.shape, 6u);
  EXPECT_EQ(p.groups[0].calls, 3u);
  EXPECT_LE(p.current()->scheduled, p.read_at);
  EXPECT_GT(p.current()->scheduled, p.read_at - 60'000'000'000);
}

TEST_F(Page, FindsAReceiveThatWaitsAmongThoseThatEnded) {
  page_->join(0, 3);
  const auto track = add(7, "pp");
  for (std::uint64_t n = 1; n <= 20; ++n) {
    track->exchanges.started(n, {.shape = n});
    if (n != 4) track->exchanges.ended(n, true);
  }
  const RankProgress p = reader_.read();
  ASSERT_THAT(p.current(), NotNull());
  EXPECT_TRUE(p.current()->exchange);
  EXPECT_EQ(p.current()->sequence, 4u);
}

TEST_F(Page, HasAMarkThatChangesWithProgress) {
  page_->join(0, 3);
  const auto track = add(7, "dp");
  std::set<std::uint64_t> marks = {reader_.read().progress_mark};
  const auto changed = [&] { return marks.insert(reader_.read_brief().progress_mark).second; };
  EXPECT_FALSE(changed());
  page_->begin_step(1);
  EXPECT_TRUE(changed());
  track->collectives.started(1, FlightCall{});
  EXPECT_TRUE(changed());
  EXPECT_FALSE(changed());
  track->collectives.ended(1, true);
  EXPECT_TRUE(changed());
  track->exchanges.started(1, FlightCall{});
  EXPECT_TRUE(changed());
  page_->begin_step(1);  // the same number: a step all the same
  EXPECT_TRUE(changed());
}

TEST_F(Page, ForgetsAGroupThatIsGoneAndReusesItsPlace) {
  page_->join(0, 3);
  auto first = add(1, "first");
  first->collectives.started(1, {.shape = 9});
  first->leave();
  ASSERT_THAT(reader_.read().groups, SizeIs(1));
  EXPECT_TRUE(reader_.read().groups[0].left);
  first.reset();
  EXPECT_THAT(reader_.read().groups, SizeIs(0));
  const auto second = add(2, "second");
  ASSERT_THAT(second, NotNull());
  EXPECT_FALSE(second->collectives.read(1));
  EXPECT_THAT(reader_.read().current(), IsNull());
}

TEST_F(Page, HasRoomForSoManyGroupsAndThenForNone) {
  page_->join(0, 3);
  std::vector<std::shared_ptr<FlightTrack>> tracks;
  for (int i = 0; i < ProgressLayout::kGroups; ++i) {
    tracks.push_back(add(std::uint64_t(i + 1), "g" + std::to_string(i)));
    ASSERT_THAT(tracks.back(), NotNull());
    tracks.back()->collectives.started(std::uint64_t(i + 1), FlightCall{});
  }
  EXPECT_THAT(add(1000, "one more"), IsNull());
  const RankProgress p = reader_.read();
  ASSERT_THAT(p.groups, SizeIs(ProgressLayout::kGroups));
  for (int i = 0; i < ProgressLayout::kGroups; ++i) EXPECT_EQ(p.groups[i].calls, std::uint64_t(i + 1));
}

TEST_F(Page, OutlivesARankThatIsKilled) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    page_->join(2, 3);
    const auto track = add(7, "dp");
    page_->begin_step(12);
    track->collectives.started(42, {.shape = 5});
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFSIGNALED(status));
  const RankProgress p = reader_.read();
  EXPECT_EQ(p.pid, pid);
  EXPECT_EQ(p.step, 12);
  ASSERT_THAT(p.current(), NotNull());
  EXPECT_EQ(p.current()->sequence, 42u);
  EXPECT_FALSE(p.current()->is_over());
}

// A file that grows beyond the limit would kill the rank.
TEST_F(Page, DoesNotGrowBeyondTheLimitOfFiles) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const rlimit limit{.rlim_cur = 100 * 1024, .rlim_max = 100 * 1024};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    page_->join(0, 3);
    ::_exit(add(1, "small", 64) && !add(2, "large", 64 * 1024) && !add(3, "one too many", 2048) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(Page, OfOneProcessHasNoRoomForRings) {
  auto page = ProgressPage::make_private().or_throw();
  page->join(0, 1);
  page->begin_step(5);
  EXPECT_EQ(page->step(), 5);
  EXPECT_THAT(page->add({.id = 1, .name = "world"}, 4096), IsNull());
  page->request_stop(SIGUSR1);
  EXPECT_EQ(page->stop_request(), SIGUSR1);
}

TEST(PageOfAnother, IsRefused) {
  const Fd other(::memfd_create("other", MFD_CLOEXEC));
  const auto page = ProgressPage::open(other.get());
  ASSERT_FALSE(page.ok());
  EXPECT_EQ(page.error().code, Code::kMismatch);
  EXPECT_THAT(page.error().detail, HasSubstr("is not a progress page of this version of tutti"));
  EXPECT_FALSE(ProgressPage::open(-1).ok());
}

}  // namespace
}  // namespace tutti::trace
