#include "tutti/doctor/gpu_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Four GPUs, two on each of two NUMA nodes, each with a card below its switch.
GpuSurvey good_survey() {
  GpuSurvey survey;
  for (int place = 0; place < 4; ++place) {
    GpuInfo gpu{.name = "NVIDIA H200", .memory = std::uint64_t(139) << 30, .numa = place / 2};
    for (int other = 0; other < 4; ++other)
      if (other != place) gpu.nvlink.push_back(other);
    gpu.card = "mlx5_" + std::to_string(place);
    gpu.card_distance = CardDistance::kSameSwitch;
    survey.gpus.push_back(gpu);
  }
  return survey;
}
GpuJob good_job() { return {.ranks = 4, .nodes = 2, .has_gpus = true, .visible = {0, 1, 2, 3}, .core_nodes = {0, 1}}; }

// The findings that are no line about a GPU that is well.
std::vector<Finding> odd(const GpuSurvey& survey, const GpuJob& job) {
  auto findings = check_gpus(survey, job);
  std::erase_if(findings, [](const Finding& finding) { return finding.grade == Grade::kOk; });
  return findings;
}
Finding only(const std::vector<Finding>& findings) {
  EXPECT_EQ(findings.size(), 1u) << to_text(findings);
  return findings.empty() ? Finding() : findings.front();
}

TEST(GpuChecks, EachGpuHasALine) {
  const auto findings = check_gpus(good_survey(), good_job());
  ASSERT_EQ(findings.size(), 4u) << to_text(findings);
  EXPECT_EQ(findings[2],
            (Finding{Grade::kOk, "gpu 2",
                     "NVIDIA H200, 139 GiB, NUMA node 1, NVLink to GPUs 0, 1, 3, network card mlx5_2 (same "
                     "PCIe switch)",
                     ""}));
  GpuSurvey survey = good_survey();
  survey.gpus[1] = {.name = "T4", .memory = std::uint64_t(16) << 30, .mode = ComputeMode::kExclusive};
  EXPECT_EQ(check_gpus(survey, good_job())[1].fact, "T4, 16 GiB, exclusive mode, NUMA node unknown, PCIe only");
  EXPECT_THAT(check_gpus({}, {}), IsEmpty());
}

TEST(GpuChecks, ExclusiveGpusForMoreRanks) {
  GpuSurvey survey = good_survey();
  survey.gpus[0].mode = survey.gpus[1].mode = ComputeMode::kExclusive;
  GpuJob job = good_job();
  EXPECT_THAT(odd(survey, job), IsEmpty()) << "a GPU for each rank";
  job.visible = {0, 1};
  const Finding finding = only(odd(survey, job));
  EXPECT_EQ(finding.grade, Grade::kFail);
  EXPECT_EQ(finding.fact,
            "GPUs 0, 1 are in exclusive mode, and 4 ranks share 2 GPUs: the second process on a GPU is refused");
  EXPECT_EQ(finding.fix, "tutti run -n 2, or as root: nvidia-smi -i 0,1 -c DEFAULT");
}

TEST(GpuChecks, ProhibitedGpus) {
  GpuSurvey survey = good_survey();
  survey.gpus[3].mode = ComputeMode::kProhibited;
  const Finding finding = only(odd(survey, good_job()));
  EXPECT_EQ(finding.grade, Grade::kFail);
  EXPECT_EQ(finding.fact, "GPU 3: the compute mode lets no process compute there");
  GpuJob job = good_job();
  job.visible = {0, 1};
  EXPECT_THAT(odd(survey, job), IsEmpty()) << "no rank takes it";
}

TEST(GpuChecks, LostGpus) {
  GpuSurvey survey = good_survey();
  survey.gpus[1] = {.trouble = "GPU is lost"};
  const Finding finding = only(odd(survey, good_job()));
  EXPECT_EQ(finding.grade, Grade::kFail);
  EXPECT_EQ(finding.subject, "gpu 1");
  EXPECT_EQ(finding.fact, "this GPU does not answer: GPU is lost");
}

TEST(GpuChecks, GpusThatCannotAccessOneAnother) {
  GpuSurvey survey = good_survey();
  survey.gpus[0].no_access = {2, 3};
  GpuJob job = good_job();
  job.visible = {0, 1, 2};
  const Finding finding = only(odd(survey, job));
  EXPECT_EQ(finding.grade, Grade::kWarn);
  EXPECT_EQ(finding.subject, "gpu 0");
  EXPECT_EQ(finding.fact, "cannot access the memory of GPU 2: copies between them pass through the host");
}

TEST(GpuChecks, CoresOfAnotherNode) {
  GpuJob job = good_job();
  job.core_nodes = {0};
  job.visible = {2, 0};
  const Finding finding = only(odd(good_survey(), job));
  EXPECT_EQ(finding.subject, "gpu 2");
  EXPECT_EQ(finding.fact, "on NUMA node 1, of which this process may use no core");
}

TEST(GpuChecks, ACardOfAnotherNodeMattersOnSeveralHosts) {
  GpuSurvey survey = good_survey();
  survey.gpus[3].card_distance = CardDistance::kOtherNode;
  GpuJob job = good_job();
  const Finding finding = only(odd(survey, job));
  EXPECT_EQ(finding.grade, Grade::kWarn);
  EXPECT_THAT(finding.fact, HasSubstr("its nearest network card, mlx5_3, is on another NUMA node than the GPU and the "
                                      "cores near it (node 1)"));
  job.nodes = 1;
  EXPECT_THAT(odd(survey, job), IsEmpty());
}

TEST(GpuChecks, ALibraryThatFailsMattersWhereGpusAre) {
  const GpuSurvey survey{.gpus = {}, .trouble = "Driver/library version mismatch"};
  const Finding finding = only(odd(survey, good_job()));
  EXPECT_EQ(finding.grade, Grade::kWarn);
  EXPECT_EQ(finding.fact, "what joins the GPUs is not known: Driver/library version mismatch");
  EXPECT_THAT(odd(survey, {}), IsEmpty());
}

}  // namespace
}  // namespace tutti::doctor
