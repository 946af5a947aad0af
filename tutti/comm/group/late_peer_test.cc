// What a group does while its calls wait, seen from outside: two ranks as threads of this process.
#include <gmock/gmock.h>
#include <poll.h>
#include <sched.h>

#include <ctime>
#include <latch>
#include <thread>

#include "tutti/base/machine.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/inproc_world.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

double cpu_seconds(clockid_t of) {
  timespec time{};
  (void)::clock_gettime(of, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

class LatePeer : public testing::Test {
 protected:
  static constexpr std::size_t kFloats = 1 << 18;

  void begin(const InprocOptions& options) {
    auto world = make_inproc_world(2, options);
    mine_ = std::move(world[0]);
    peer_ = std::thread([this, theirs = std::move(world[1])] {
      come_.wait();
      const Works works = submit_two(theirs, {});
      (void)works.wait();
    });
  }
  void let_peer_come() { come_.count_down(); }
  void TearDown() override {
    if (!come_.try_wait()) come_.count_down();
    if (peer_.joinable()) peer_.join();
  }
  // `limit`: of the second.
  static Works submit_two(const Group& group, Duration limit) {
    thread_local std::vector<float> first, second;
    first.assign(kFloats, 1), second.assign(kFloats, 2);
    Request requests[] = {requests::all_reduce(std::span(first), ReduceOp::kSum),
                          requests::all_reduce(std::span(second), ReduceOp::kSum)};
    requests[1].limit = limit;
    return group.submit(requests);
  }

  Group mine_;

 private:
  std::latch come_{1};
  std::thread peer_;
};

TEST_F(LatePeer, CostsNoProcessorTimeHoweverManyCallsAreQueued) {
  begin({.hang_warning = milliseconds(10)});
  const Works works = submit_two(mine_, {});
  (void)::poll(nullptr, 0, 100);  // beyond the warning
  const double before = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
  (void)::poll(nullptr, 0, 500);  // a rate needs an interval
  EXPECT_LT(cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - before, 0.1);
  let_peer_come();
  EXPECT_TRUE(works.wait().ok());
}

TEST_F(LatePeer, ACallThatIsQueuedEndsByItsOwnDeadline) {
  begin({.collective_timeout = seconds(20)});
  const Works works = submit_two(mine_, milliseconds(100));
  const Status second = works[1].wait();
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kTimeout);
  EXPECT_THAT(to_string(second.error()), HasSubstr("all_reduce #2 (f32[262144], sum) on group world, rank 0: still "
                                                   "waiting for its turn behind all_reduce #1 (f32[262144], sum), "
                                                   "which waits for rank 1 after "));
  EXPECT_FALSE(works[0].wait().ok()) << "a call that fails ends the group";
}

// The processor time of one all_reduce of 256 KiB, of both ranks, on one core.
double cpu_of_call(bool known_to_be_one_core) {
  cpu_set_t all, one;
  (void)::sched_getaffinity(0, sizeof all, &all);
  CPU_ZERO(&one);
  CPU_SET(::sched_getcpu(), &one);
  const auto bind = [](const cpu_set_t& cores) { (void)::sched_setaffinity(0, sizeof cores, &cores); };
  if (known_to_be_one_core) bind(one);
  auto world = make_inproc_world(2);
  bind(all);
  constexpr int kCalls = 200;
  double times[2] = {};
  std::vector<std::thread> ranks;
  for (int rank : {0, 1})
    ranks.emplace_back([&, rank, group = std::move(world[std::size_t(rank)])] {
      bind(one);
      std::vector<float> values(1 << 16, 1);
      for (int call = -20; call < kCalls; ++call) {
        if (call == 0) times[rank] = -cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
        group.run(requests::all_reduce(std::span(values), ReduceOp::kMax)).or_throw();
      }
      times[rank] += cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    });
  for (auto& rank : ranks) rank.join();
  return (times[0] + times[1]) / kCalls;
}

TEST(OneCore, AWaitingRankGivesWayThoughThereAreMoreCores) {
  if (usable_cores() < 2) GTEST_SKIP() << "needs two cores, and this process may use one";
  const double known = cpu_of_call(true), unknown = cpu_of_call(false);
  EXPECT_LT(unknown, 2.5 * known) << known * 1e6 << " us where the ranks outnumber the cores that they may use, "
                                  << unknown * 1e6 << " us where they do not";
}

}  // namespace
}  // namespace tutti
