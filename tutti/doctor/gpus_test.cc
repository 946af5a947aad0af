// The double of NVIDIA's library (tests/fakes/cuda/nvml.cc), and a sysfs of one's own.
#include "tutti/doctor/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/harness/temporary_sys.h"

namespace tutti::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GpuSurveys : public ::testing::Test {
 protected:
  GpuSurveys() {
    set("TUTTI_CUDA_PATH", TUTTI_FAKE_CUDA);
    set("FAKE_CUDA_DEVICES", "4");
  }
  ~GpuSurveys() override {
    for (const char* name : set_) ::unsetenv(name);
  }
  void set(const char* name, const char* value) {
    ::setenv(name, value, 1);
    set_.push_back(name);
  }
  // The double's GPUs have the addresses 0000:01:00.0, 0000:02:00.0, ...
  test::TemporarySys sys_;

 private:
  std::vector<const char*> set_;
};

TEST_F(GpuSurveys, HaveWhatTheDriverSays) {
  set("FAKE_NVML_MODE", "3");
  set("FAKE_NVML_CLOSED", "1");
  const GpuSurvey survey = survey_gpus(sys_.root());
  EXPECT_EQ(survey.trouble, "");
  ASSERT_EQ(survey.gpus.size(), 4u);
  const GpuInfo& gpu = survey.gpus[2];
  EXPECT_EQ(gpu.name, "NVIDIA Double");
  EXPECT_EQ(gpu.uuid, "GPU-02-double");
  EXPECT_EQ(gpu.address, "0000:03:00.0");
  EXPECT_EQ(gpu.memory, std::uint64_t(80) << 30);
  EXPECT_EQ(gpu.mode, ComputeMode::kExclusive);
  EXPECT_THAT(gpu.nvlink, ElementsAre(3));
  EXPECT_THAT(gpu.no_access, ElementsAre(0, 1));
  EXPECT_EQ(gpu.numa, std::nullopt);
  EXPECT_EQ(gpu.card, "");
}

TEST_F(GpuSurveys, TheNearestCardSharesTheSwitchOrTheNode) {
  sys_.add_device("pci0000:00/0000:00:01.0/0000:01:00.0", 0);
  sys_.add_device("pci0000:00/0000:00:02.0/0000:02:00.0", 0);
  sys_.add_device("pci0000:80/0000:80:01.0/0000:03:00.0", 1);
  sys_.add_device("pci0000:90/0000:90:01.0/0000:04:00.0", -1);
  sys_.add_card("infiniband", "mlx5_0", "pci0000:00/0000:00:01.0/0000:11:00.0", 0);
  sys_.add_card("infiniband", "mlx5_1", "pci0000:00/0000:00:09.0/0000:12:00.0", 0);
  sys_.add_card("net", "eth0", "pci0000:80/0000:80:01.0/0000:13:00.0", 1);  // no card that GPUs reach directly
  const GpuSurvey survey = survey_gpus(sys_.root());
  ASSERT_EQ(survey.gpus.size(), 4u);
  EXPECT_EQ(survey.gpus[0].card, "mlx5_0");
  EXPECT_EQ(survey.gpus[0].card_distance, CardDistance::kSameSwitch);
  EXPECT_EQ(survey.gpus[0].numa, 0);
  EXPECT_EQ(survey.gpus[1].card, "mlx5_0");
  EXPECT_EQ(survey.gpus[1].card_distance, CardDistance::kSameNode);
  EXPECT_EQ(survey.gpus[2].card_distance, CardDistance::kOtherNode);
  EXPECT_EQ(survey.gpus[2].numa, 1);
  EXPECT_EQ(survey.gpus[3].numa, std::nullopt);
}

TEST_F(GpuSurveys, WithoutInfiniBandTheInterfacesCount) {
  sys_.add_device("pci0000:00/0000:00:01.0/0000:01:00.0", 0);
  sys_.add_card("net", "eth0", "pci0000:00/0000:00:01.0/0000:13:00.0", 0);
  EXPECT_EQ(survey_gpus(sys_.root()).gpus[0].card, "eth0");
}

TEST_F(GpuSurveys, ALostGpuHasAPlaceAndATrouble) {
  set("FAKE_NVML_LOST", "1");
  const GpuSurvey survey = survey_gpus(sys_.root());
  ASSERT_EQ(survey.gpus.size(), 4u);
  EXPECT_EQ(survey.gpus[1].trouble, "GPU is lost");
  EXPECT_EQ(survey.gpus[1].address, "0000:02:00.0");
  EXPECT_EQ(survey.gpus[2].trouble, "");
  EXPECT_THAT(survey.gpus[0].nvlink, IsEmpty());
}

TEST_F(GpuSurveys, ADriverOfAnotherVersionIsTheTroubleOfAll) {
  set("FAKE_NVML_ERROR", "18");
  const GpuSurvey survey = survey_gpus(sys_.root());
  EXPECT_THAT(survey.gpus, IsEmpty());
  EXPECT_THAT(survey.trouble, HasSubstr("Driver/library version mismatch"));
}

TEST_F(GpuSurveys, AreFoundByTheNamesOfCudaVisibleDevices) {
  const GpuSurvey survey = survey_gpus(sys_.root());
  EXPECT_THAT(places_of({"2", "GPU-01", "GPU-0", "7", "MIG-x"}, survey), ElementsAre(2, 1)) << "GPU-0 means four";
}

TEST_F(GpuSurveys, SurviveBeingWritten) {
  sys_.add_device("pci0000:00/0000:00:01.0/0000:01:00.0", 0);
  sys_.add_card("net", "eth0", "pci0000:00/0000:00:01.0/0000:13:00.0", 0);
  set("FAKE_NVML_MODE", "2");
  set("FAKE_NVML_LOST", "3");
  const auto gpus = survey_gpus(sys_.root()).gpus;
  EXPECT_EQ(*gpus_from_json(to_json(gpus)), gpus);
  for (const char* broken : {"", "{}", "[1]", "[{}]", R"([{"name":1}])"})
    EXPECT_EQ(gpus_from_json(broken).status().error().code, Code::kCorrupt) << broken;
}

}  // namespace
}  // namespace tutti::doctor
