#include "tutti/store/shared_table.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace tutti {
namespace {

TEST(SharedTable, ACallWhoseReportThrowsHasEnded) {
  SharedTable table;
  const auto report = [](std::span<const int>, double) { throw std::runtime_error("enough"); };
  const auto entering = [](int rank) {
    return StoreRequest{.op = Op::kBarrier, .keys = {"b"}, .rank = rank, .size = 2};
  };
  EXPECT_THROW((void)table.call(entering(0), Deadline::after_seconds(60), report, 0.001), std::runtime_error);
  const auto other = table.call(entering(1), Deadline::after_seconds(0.05), {}, 1);
  ASSERT_FALSE(other.ok()) << "rank 0 had left";
  EXPECT_EQ(other.error().code, Code::kTimeout);
  EXPECT_TRUE(table.call({.op = Op::kSet, .keys = {"k"}, .values = {"v"}}, Deadline::after_seconds(60), {}, 1).ok())
      << "the table was left locked";
}

}  // namespace
}  // namespace tutti
