#include "tutti/doctor/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using ::testing::HasSubstr;

DeviceFacts four() { return {.on_bus = 4, .in_driver = 4, .nodes = {0, 1, 2, 3}, .driver = "580.1", .visible = 4}; }

Finding only(const DeviceFacts& facts, int ranks, std::optional<int> expected = {}) {
  const auto findings = check_devices(facts, ranks, expected);
  EXPECT_EQ(findings.size(), 1u) << to_text(findings);
  return findings.empty() ? Finding() : findings.front();
}

TEST(Devices, OneForEachRank) {
  EXPECT_EQ(only(four(), 4), (Finding{Grade::kOk, "devices", "4 GPUs visible for 4 ranks, driver 580.1", ""}));
}

TEST(Devices, NoneIsNoTroubleUnlessExpected) {
  EXPECT_EQ(only({}, 4).grade, Grade::kOk);
  const Finding finding = only({}, 4, 4);
  EXPECT_EQ(finding.grade, Grade::kFail);
  EXPECT_EQ(finding.fact, "4 GPUs expected, none is on this host");
}

TEST(Devices, FewerVisibleThanRanks) {
  DeviceFacts facts = four();
  facts.visible = 2, facts.visible_variable = "0,1";
  const Finding finding = only(facts, 4);
  EXPECT_EQ(finding.grade, Grade::kWarn);
  EXPECT_EQ(finding.fact,
            "4 ranks, but 2 GPUs visible (CUDA_VISIBLE_DEVICES=0,1): ranks share a device, which NCCL refuses");
  EXPECT_THAT(only(facts, 2, 4).fix, HasSubstr("correct CUDA_VISIBLE_DEVICES"));
}

TEST(Devices, ALostOne) {
  DeviceFacts facts = four();
  facts.in_driver = 3, facts.visible = 3;
  const auto findings = check_devices(facts, 3, 4);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].grade, Grade::kFail);
  EXPECT_EQ(findings[0].fact, "4 GPUs on the bus, but the driver serves 3: one is lost");
  EXPECT_THAT(findings[0].fix, HasSubstr("dmesg | grep -i xid"));
  EXPECT_EQ(findings[1].fact, "4 GPUs expected, 3 visible");
}

TEST(Devices, NoDriver) {
  const Finding finding = only({.on_bus = 1, .runtime_trouble = "there is no libcudart"}, 1, 1);
  EXPECT_EQ(finding.grade, Grade::kFail);
  EXPECT_EQ(finding.fact, "1 GPU on the bus, but no NVIDIA driver is loaded");
}

TEST(Devices, ThatThisUserMayNotOpen) {
  DeviceFacts facts = four();
  facts.nodes = {0, 1}, facts.forbidden = {2, 3}, facts.visible = 2;
  EXPECT_EQ(check_devices(facts, 2, {})[0].fact, "this user may not open /dev/nvidia2, 3");
}

TEST(Devices, NoRuntime) {
  DeviceFacts facts = four();
  facts.visible = std::nullopt, facts.runtime_trouble = "there is no libcudart.so";
  const Finding finding = only(facts, 4);
  EXPECT_EQ(finding.grade, Grade::kWarn);
  EXPECT_EQ(finding.fact, "4 GPUs here, but CUDA cannot use them: there is no libcudart.so");
}

}  // namespace
}  // namespace tutti
