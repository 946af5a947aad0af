#include "tutti/launch/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr CpuFeatures kHaswell{.avx2 = true, .fma = true};
constexpr CpuFeatures kZen5{
    .avx2 = true, .fma = true, .avx512f = true, .avx512dq = true, .avx512bw = true, .avx512vl = true, .avx512cd = true};

std::string value_of(const std::vector<Setting>& settings, const std::string& name) {
  for (const Setting& setting : settings) {
    if (setting.name == name) return setting.value;
  }
  return "(unset)";
}

TEST(OpenblasCoretype, NeverAKernelThatTheCpuLacks) {
  EXPECT_EQ(openblas_coretype(CpuFeatures{}), "");
  EXPECT_EQ(openblas_coretype(CpuFeatures{.avx2 = true}), "");
  EXPECT_EQ(openblas_coretype(kHaswell), "Haswell");
  EXPECT_EQ(openblas_coretype(kZen5), "SkylakeX");
  // Each of the five subsets is needed: Knights Landing has F and CD, but not DQ, BW and VL.
  for (bool CpuFeatures::*subset : {&CpuFeatures::avx512f, &CpuFeatures::avx512dq, &CpuFeatures::avx512bw,
                                    &CpuFeatures::avx512vl, &CpuFeatures::avx512cd}) {
    CpuFeatures cpu = kZen5;
    cpu.*subset = false;
    EXPECT_EQ(openblas_coretype(cpu), "Haswell");
  }
}

TEST(RecommendedSettings, ShareTheCores) {
  EXPECT_EQ(value_of(recommended_settings(kZen5, 64, 4), "OMP_NUM_THREADS"), "16");
  EXPECT_EQ(value_of(recommended_settings(kZen5, 7, 2), "OPENBLAS_NUM_THREADS"), "3");
  EXPECT_EQ(value_of(recommended_settings(kZen5, 2, 8), "OMP_NUM_THREADS"), "1");
  EXPECT_EQ(value_of(recommended_settings(kZen5, 4, 2), "OMP_WAIT_POLICY"), "passive");
  EXPECT_EQ(value_of(recommended_settings(kZen5, 2, 2), "OMP_WAIT_POLICY"), "(unset)");  // nobody to wait for
  EXPECT_EQ(value_of(recommended_settings(kZen5, 2, 2), "OPENBLAS_CORETYPE"), "SkylakeX");
  EXPECT_EQ(value_of(recommended_settings({}, 2, 2), "OPENBLAS_CORETYPE"), "(unset)");
  EXPECT_EQ(value_of(recommended_settings({}, 2, 2), "MALLOC_TRIM_THRESHOLD_"), "(unset)");  // programs free memory
  EXPECT_EQ(value_of(recommended_settings({}, 2, 2), "GLIBC_TUNABLES"), "glibc.malloc.hugetlb=1");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their malloc has neither thresholds nor figures
// How many bytes of a freed block of 64 MiB stay in this process.
std::size_t kept_of_a_freed_block() {
  const auto held = [] {
    const auto use = ::mallinfo2();
    return use.arena + use.hblkhd;
  };
  const std::size_t before = held();
  void* volatile block = std::malloc(64 << 20);
  std::free(block);
  return held() - before;
}

TEST(KeepFreedMemory, AllOfItUnlessTheUserHasChosenThresholds) {
  const auto kept_with = [](std::map<std::string, std::string> variables) {
    const pid_t child = fork();  // the thresholds last as long as their process
    if (child == 0) {
      keep_freed_memory([&](const std::string& name) {
        const auto at = variables.find(name);
        return at == variables.end() ? std::nullopt : std::optional(at->second);
      });
      _exit(kept_of_a_freed_block() >= 64 << 20 ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 1;
  };
  EXPECT_TRUE(kept_with({}));
  EXPECT_TRUE(kept_with({{"GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"}}));
  EXPECT_FALSE(kept_with({{"MALLOC_TRIM_THRESHOLD_", "131072"}}));
  EXPECT_FALSE(kept_with({{"GLIBC_TUNABLES", "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=131072"}}));
}
#endif

TEST(SlowStartWarning, OnlyWhereItIsSlow) {
  std::map<std::string, std::string> variables;
  const auto lookup = [&](const std::string& name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  };
  EXPECT_EQ(slow_start_warning(lookup, kZen5, 8, 1, "SkylakeX"), "");
  EXPECT_EQ(slow_start_warning(lookup, kZen5, 8, 1, ""), "");
  EXPECT_EQ(slow_start_warning(lookup, CpuFeatures{}, 8, 1, "Prescott"), "");  // it is one
  EXPECT_THAT(slow_start_warning(lookup, kZen5, 8, 1, "Prescott"),
              AllOf(HasSubstr("up to 5 times slower"), HasSubstr("set OPENBLAS_CORETYPE=SkylakeX")));
  EXPECT_THAT(slow_start_warning(lookup, kHaswell, 8, 4, "Haswell"), HasSubstr("set OMP_NUM_THREADS=2"));
  EXPECT_THAT(slow_start_warning(lookup, kZen5, 8, 4, "prescott"),
              HasSubstr("set OPENBLAS_CORETYPE=SkylakeX OMP_NUM_THREADS=2, or start it with"));
  variables = {{"OPENBLAS_CORETYPE", "Haswell"}, {"OMP_NUM_THREADS", "8"}};
  EXPECT_EQ(slow_start_warning(lookup, kZen5, 8, 4, "Prescott"), "");
}

}  // namespace
}  // namespace tutti
