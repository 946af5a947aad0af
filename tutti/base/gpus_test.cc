#include "tutti/base/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Gpus, TheVariableIsReadAsCudaReadsIt) {
  const auto gpus = [](const char* text) { return visible_gpus({{"CUDA_VISIBLE_DEVICES", text}}); };
  EXPECT_THAT(gpus("2,0"), ElementsAre("2", "0"));
  EXPECT_THAT(gpus(" GPU-8f2a , 1"), ElementsAre("GPU-8f2a", "1"));
  EXPECT_THAT(gpus("3,-1,4"), ElementsAre("3"));
  EXPECT_THAT(gpus(""), IsEmpty());
  EXPECT_THAT(gpus("-1"), IsEmpty());
}

TEST(Gpus, DeviceFilesCountWhereTheVariableIsNotSet) {
  std::string folder = std::filesystem::temp_directory_path() / "tutti_gpus_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  EXPECT_THAT(visible_gpus({}, folder), IsEmpty());
  for (const char* name : {"nvidia0", "nvidia5", "nvidiactl", "nvidia-uvm"}) std::ofstream(folder + "/" + name);
  EXPECT_THAT(visible_gpus({}, folder), ElementsAre("0", "1"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tutti
