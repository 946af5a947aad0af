// A host that gives a job too little: no shared memory by name, few descriptors.
#include "tests/hosts/on_hosts.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Limits : public OnHosts {
 protected:
  Limits() : OnHosts(1) {}
};

TEST_F(Limits, AFullDevShmIsNoMatter) {
  must(hosts()
           .shell(0, "mount -t tmpfs -o size=1m tmpfs /dev/shm && head -c 1m /dev/zero > /dev/shm/leaked; ls /dev/shm")
           .status());
  const Ended ended = start(0, {"run", "-n", "3", world(), "once"}).wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("rank 2 of 3: sum 6"));
  EXPECT_EQ(*hosts().shell(0, "ls /dev/shm"), "leaked\n");
}

}  // namespace
}  // namespace tutti::testing
