#include "tutti/launch/affinity/shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<std::string> kFour = {"4", "5", "6", "GPU-7f"};

TEST(Devices, AreChosenByTheirPlaceInTheVisibleList) {
  EXPECT_EQ(*chosen_devices("", kFour), kFour);
  EXPECT_THAT(*chosen_devices("0,2-3", kFour), ElementsAre("4", "6", "GPU-7f"));
  EXPECT_THAT(*chosen_devices("3,0", kFour), ElementsAre("GPU-7f", "4"));
}

TEST(Devices, WhatIsNotThereIsSaid) {
  const auto detail = [](const char* list, const std::vector<std::string>& visible) {
    const auto chosen = chosen_devices(list, visible);
    EXPECT_EQ(chosen.error().code, Code::kUsage);
    return chosen.error().detail;
  };
  EXPECT_EQ(detail("4", kFour), "--devices names GPU 4, but 4 GPUs are visible on this host, numbered from 0");
  EXPECT_EQ(detail("1", {"0"}), "--devices names GPU 1, but 1 GPU is visible on this host, numbered from 0");
  EXPECT_EQ(detail("0", {}), "--devices names GPU 0, but no GPU is visible on this host");
  EXPECT_EQ(detail("0,1-2,2", kFour), "--devices names GPU 2 twice");
  for (const char* wrong : {"a", "2-1", "-1", "1-", "1.5"})
    EXPECT_EQ(detail(wrong, kFour), "--devices needs numbers and ranges, not '" + std::string(wrong) + "'");
  EXPECT_EQ(detail("0,,1", kFour), "--devices needs numbers and ranges, not '' (in '0,,1')");
}

TEST(Shares, AsTorchrunAllRanksSeeAll) {
  const auto shares = share_out({}, {}, kFour, 3);
  EXPECT_THAT((*shares)[1].variables, IsEmpty());
  EXPECT_EQ((*shares)[1].gpu, "5");
  const auto some = share_out({.devices = "1-2"}, {}, kFour, 3);
  for (const Share& share : *some) EXPECT_EQ(share.variables.at("CUDA_VISIBLE_DEVICES"), "5,6");
  EXPECT_EQ((*some)[2].gpu, "5");
}

TEST(Shares, OneEach) {
  const auto shares = share_out({.devices = "0,3", .one_device_each = true}, {}, kFour, 2);
  EXPECT_EQ((*shares)[1].variables, (Environment{{"CUDA_VISIBLE_DEVICES", "GPU-7f"}}));
  const auto virtually = share_out({.virtual_local_rank = true}, {}, kFour, 2);
  EXPECT_EQ((*virtually)[1].variables, (Environment{{"CUDA_VISIBLE_DEVICES", "5"}, {"LOCAL_RANK", "0"}}));
  EXPECT_EQ(share_out({.devices = "0,1", .one_device_each = true}, {}, kFour, 3).error().detail,
            "--visible one needs a GPU for each of 3 ranks, but the job has 2 GPUs on this host");
  EXPECT_EQ(share_out({.virtual_local_rank = true}, {}, {}, 1).error().detail,
            "--virtual-local-rank needs a GPU for each of 1 rank, but none is visible on this host");
}

TEST(Shares, HaveAShortText) {
  EXPECT_EQ(Share{}.text(), "any CPU");
  EXPECT_EQ((Share{.cpus = {0, 1, 2, 3, 8}, .gpu = "2", .variables = {}}.text()), "CPU 0-3, 8, GPU 2");
  const Topology two = {{.cpus = {0}}, {.cpus = {1}}};
  EXPECT_EQ((*share_out({.bind = Bind::kCore}, two, {}, 2))[1].cpus, std::vector{1});
}

TEST(Arguments, LocalRankStandsWhereverItIsAskedFor) {
  const std::vector<std::string> arguments = {"p", "--out=${local_rank}/${local_rank}", "$local_rank", "${rank}"};
  EXPECT_THAT(arguments_of_rank(arguments, 12, false), ElementsAre("p", "--out=12/12", "$local_rank", "${rank}"));
  EXPECT_THAT(arguments_of_rank({"p", "x"}, 3, true), ElementsAre("p", "x", "--local-rank=3"));
}

}  // namespace
}  // namespace tutti::launch
