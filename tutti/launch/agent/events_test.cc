#include "tutti/launch/agent/events.h"

#include <gtest/gtest.h>
#include <sys/types.h>

namespace tutti::launch {
namespace {

constexpr pid_t kSupervisor = 100, kScheduler = 7, kOtherNamespace = 0;

TEST(EndRequests, ASignalToEveryProcessIsOneRequest) {
  for (const pid_t scheduler : {kScheduler, kOtherNamespace}) {
    EndRequests scheduler_first(kSupervisor), supervisor_first(kSupervisor);
    EXPECT_TRUE(scheduler_first.add(scheduler));
    EXPECT_FALSE(scheduler_first.add(kSupervisor));
    EXPECT_TRUE(supervisor_first.add(kSupervisor));
    EXPECT_FALSE(supervisor_first.add(scheduler));
    // The scheduler's second signal is the user's second request.
    EXPECT_TRUE(scheduler_first.add(kSupervisor));
    EXPECT_FALSE(scheduler_first.add(scheduler));
  }
}

TEST(EndRequests, EverySignalOnOneWayIsARequest) {
  for (const pid_t sender : {kSupervisor, kScheduler}) {
    EndRequests requests(kSupervisor);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(requests.add(sender)) << i;
  }
}

}  // namespace
}  // namespace tutti::launch
