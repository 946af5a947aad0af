#include "tutti/base/sanitizers.h"

#include <gtest/gtest.h>

#include <string_view>

namespace tutti {
namespace {

TEST(Sanitizers, AreThoseOfTheBuild) {
  constexpr std::string_view kOfTheBuild = TUTTI_TEST_SANITIZE;
  EXPECT_EQ(TUTTI_ASAN, kOfTheBuild.find("address") != std::string_view::npos);
  EXPECT_EQ(TUTTI_TSAN, kOfTheBuild.find("thread") != std::string_view::npos);
}

}  // namespace
}  // namespace tutti
