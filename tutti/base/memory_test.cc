#include "tutti/base/memory.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace tutti {

namespace {

using ::testing::HasSubstr;

TEST(KeptMemory, IsSparseAndHasADistinctIdentity) {
  const Fd one = KeptMemory::create().or_throw(), two = KeptMemory::create().or_throw();
  const auto first = KeptMemory::open(one.get()).or_throw(), again = KeptMemory::open(one.get()).or_throw();
  EXPECT_EQ(first.keeper(), again.keeper());
  EXPECT_NE(first.keeper(), KeptMemory::open(two.get()).or_throw().keeper());
  ASSERT_EQ(::pwrite(first.fd(), "kept", 4, off_t(KeptMemory::kBytes / 2)), 4);
  char text[4] = {};
  ASSERT_EQ(::pread(again.fd(), text, 4, off_t(KeptMemory::kBytes / 2)), 4);
  EXPECT_EQ(std::string(text, 4), "kept");
  struct stat facts {};
  ASSERT_EQ(::fstat(one.get(), &facts), 0);
  EXPECT_LE(facts.st_blocks * 512, 1 << 20);
  EXPECT_NE(::ftruncate(one.get(), 0), 0) << "what a peer has mapped must not go";
}

TEST(KeptMemory, OtherDescriptorsAreRejected) {
  ::unsetenv(KeptMemory::kVariable);
  EXPECT_EQ(KeptMemory::open_given().error().code, Code::kNotFound);
  ::setenv(KeptMemory::kVariable, "twelve", 1);
  EXPECT_THAT(KeptMemory::open_given().error().detail, HasSubstr("is \"twelve\", which is no descriptor"));
  ::setenv(KeptMemory::kVariable, "0", 1);
  EXPECT_THAT(KeptMemory::open_given().error().detail, HasSubstr("descriptor 0 is no kept memory"));
  const Fd fd = KeptMemory::create().or_throw();
  ::setenv(KeptMemory::kVariable, std::to_string(fd.get()).c_str(), 1);
  EXPECT_TRUE(KeptMemory::open_given().ok());
  ::unsetenv(KeptMemory::kVariable);
}

}  // namespace

}  // namespace tutti
