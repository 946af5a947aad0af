#include "tutti/launch/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "tutti/base/sanitizers.h"

namespace tutti::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr CpuFeatures kHaswell{.avx2 = true, .fma = true};
constexpr CpuFeatures kZen5{
    .avx2 = true, .fma = true, .avx512f = true, .avx512dq = true, .avx512bw = true, .avx512vl = true, .avx512cd = true};

VariableLookup in(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  };
}

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

#if !TUTTI_ASAN && !TUTTI_TSAN  // their malloc has neither thresholds nor figures
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
      keep_freed_memory(in(std::move(variables)));
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
  auto lookup = in({});
  EXPECT_EQ(slow_start_warning(lookup, kZen5, 8, 1, "SkylakeX"), "");
  EXPECT_EQ(slow_start_warning(lookup, kZen5, 8, 1, ""), "");
  EXPECT_EQ(slow_start_warning(lookup, CpuFeatures{}, 8, 1, "Prescott"), "");  // it is one
  EXPECT_THAT(slow_start_warning(lookup, kZen5, 8, 1, "Prescott"),
              AllOf(HasSubstr("up to 5 times slower"), HasSubstr("set OPENBLAS_CORETYPE=SkylakeX")));
  EXPECT_THAT(slow_start_warning(lookup, kHaswell, 8, 4, "Haswell"), HasSubstr("set OMP_NUM_THREADS=2"));
  EXPECT_THAT(slow_start_warning(lookup, kZen5, 8, 4, "prescott"),
              HasSubstr("set OPENBLAS_CORETYPE=SkylakeX OMP_NUM_THREADS=2, or start it with"));
  lookup = in({{"OPENBLAS_CORETYPE", "Haswell"}, {"OMP_NUM_THREADS", "8"}});
  EXPECT_EQ(slow_start_warning(lookup, kHaswell, 8, 4, "Haswell"), "");
  EXPECT_THAT(slow_start_warning(lookup, kZen5, 8, 4, "Haswell"),
              AllOf(HasSubstr("OPENBLAS_CORETYPE=Haswell chooses kernels that are 1.4 to 1.7 times slower"),
                    ::testing::EndsWith("set OPENBLAS_CORETYPE=SkylakeX")))
      << "tutti run would keep the user's value";
  EXPECT_EQ(
      slow_start_warning(in({{"OMP_NUM_THREADS", "64"}, {"OMP_WAIT_POLICY", "active"}}), kZen5, 2, 1, ""),
      "this program was not started by `tutti run` and will be slow: OMP_NUM_THREADS is 64, more than the 2 cores "
      "of a rank; OMP_WAIT_POLICY is active, with which idle threads take cores from the others; set "
      "OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive");
  EXPECT_EQ(slow_start_warning(in({{"OMP_NUM_THREADS", "4"}}), kZen5, 4, 2, ""), "") << "bound to 4 cores each";
  EXPECT_EQ(slow_start_warning(in({{"OMP_NUM_THREADS", "1"}}), kZen5, 8, 1, ""), "") << "fewer may be meant";
}

TEST(CostlyVariables, AreReportedWithTheirCost) {
  EXPECT_EQ(costly_kernels(in({{"OPENBLAS_CORETYPE", "haswell"}}), kZen5),
            "OPENBLAS_CORETYPE is haswell, with which matrix products are 1.4 to 1.7 times slower than with SkylakeX");
  EXPECT_THAT(costly_kernels(in({{"OPENBLAS_CORETYPE", "Nehalem"}}), kHaswell), HasSubstr("up to 5 times slower"));
  EXPECT_EQ(costly_kernels(in({{"OPENBLAS_CORETYPE", "Haswell"}}), kHaswell), "");
  EXPECT_EQ(costly_kernels(in({{"OPENBLAS_CORETYPE", "Nehalem"}}), {}), "");
  EXPECT_EQ(costly_kernels(in({{"OPENBLAS_CORETYPE", "of a later OpenBLAS"}}), kZen5), "");
  EXPECT_EQ(costly_kernels(in({}), kZen5), "");
  EXPECT_EQ(costly_threads(in({{"OMP_NUM_THREADS", "64"}, {"OPENBLAS_NUM_THREADS", "1"}}), 2),
            "OMP_NUM_THREADS is 64, more than the 2 cores of a rank; OPENBLAS_NUM_THREADS is 1, fewer than the 2 cores "
            "of a rank");
  EXPECT_EQ(costly_threads(in({{"OMP_NUM_THREADS", "2,1"}}), 2), "");
  EXPECT_EQ(costly_threads(in({{"OMP_NUM_THREADS", "1"}, {"OMP_WAIT_POLICY", "active"}}), 1), "");
  for (const char* active : {"active", "ACTIVE", "Active"})
    EXPECT_THAT(costly_threads(in({{"OMP_WAIT_POLICY", active}}), 4), HasSubstr("OMP_WAIT_POLICY is active"));
}

TEST(MissingSettings, AreThoseThatTheUserHasNotSet) {
  const auto threads = [](const std::map<std::string, std::string>& variables, bool alone) {
    const auto missing = missing_settings(in(variables), kZen5, 8, alone);
    EXPECT_EQ(value_of(missing, "OMP_WAIT_POLICY"), "passive");
    return value_of(missing, "OMP_NUM_THREADS") + " " + value_of(missing, "OPENBLAS_NUM_THREADS");
  };
  EXPECT_EQ(threads({}, true), "8 8");
  EXPECT_EQ(threads({}, false), "(unset) (unset)") << "its launcher may have bound the rank";
  EXPECT_EQ(threads({{"OMP_NUM_THREADS", "1"}}, true), "(unset) (unset)") << "OpenBLAS follows the user's number";
  std::map<std::string, std::string> all;
  for (const Setting& setting : recommended_settings(kZen5, 8, 1)) all[setting.name] = setting.value;
  EXPECT_THAT(missing_settings(in(all), kZen5, 8, true), ::testing::IsEmpty());
}

TEST(ThreadCount, IsANumberOrAListOfNumbers) {
  for (const char* given : {"1", "4", "4,2", " 4 , 2"})
    EXPECT_TRUE(check_thread_count(in({{"OMP_NUM_THREADS", given}})).ok());
  for (const char* given : {"0", "-1", "four", "4,", "4,0", "1e3", "99999999999"})
    EXPECT_FALSE(check_thread_count(in({{"OMP_NUM_THREADS", given}})).ok()) << given;
  EXPECT_TRUE(check_thread_count(in({})).ok());
}

}  // namespace
}  // namespace tutti::launch
