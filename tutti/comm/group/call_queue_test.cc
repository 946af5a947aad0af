// What a group does while its calls wait, seen from outside: two ranks as threads of this process.
#include <gmock/gmock.h>
#include <poll.h>

#include <ctime>
#include <latch>
#include <thread>

#include "tests/harness/limits.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/group/engine.h"
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

TEST(Engine, WithoutADescriptorOrAThreadIsAnError) {
  {
    const test::FewDescriptors none(0);
    const auto engine = Engine::create(nullptr, {});
    ASSERT_FALSE(engine.ok());
    EXPECT_THAT(to_string(engine.error()), HasSubstr("cannot make an eventfd: Too many open files"));
  }
  const test::NoThreads none;
  const auto engine = Engine::create(nullptr, {});
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(to_string(engine.error()), HasSubstr("could not start a thread"));
}

}  // namespace
}  // namespace tutti
