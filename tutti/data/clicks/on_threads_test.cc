#include "tutti/data/clicks/on_threads.h"

#include <gmock/gmock.h>

#include "tests/harness/limits.h"

namespace tutti {
namespace {

TEST(OnThreads, WithoutThreadsIsAnError) {
  const test::NoThreads none;
  const Status status = on_threads(
      3, [] { return Status(); }, [] {});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kSystem);
  EXPECT_THAT(to_string(status.error()), ::testing::HasSubstr("could not start a thread"));
}

}  // namespace
}  // namespace tutti
