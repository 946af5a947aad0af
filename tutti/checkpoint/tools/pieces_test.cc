#include "tutti/checkpoint/tools/pieces.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/harness/limits.h"

namespace tutti {
namespace {

TEST(InParallel, WithoutThreadsTheCallerWorksAlone) {
  const test::NoThreads none;
  std::atomic<int> sum{0};
  const auto add = [&](std::size_t number) {
    sum += int(number);
    return Status();
  };
  EXPECT_TRUE(in_parallel(4, 10, add).ok());
  EXPECT_EQ(sum, 45);
}

}  // namespace
}  // namespace tutti
