#include "tutti/doctor/report.h"

#include <gtest/gtest.h>

namespace tutti::doctor {
namespace {

const std::vector<Finding> kThree = {{Grade::kOk, "cores", "16 cores for 4 ranks", ""},
                                     {Grade::kWarn, "clock", "not synchronised", "run an NTP client"},
                                     {Grade::kFail, "a - b", "b cannot reach a", "open the firewall"}};

TEST(Findings, AreALineEach) {
  EXPECT_EQ(to_text(kThree),
            "OK    cores  16 cores for 4 ranks\n"
            "WARN  clock  not synchronised (fix: run an NTP client)\n"
            "FAIL  a - b  b cannot reach a (fix: open the firewall)\n");
  EXPECT_EQ(summary(kThree), "1 OK, 1 WARN, 1 FAIL");
  EXPECT_EQ(worst(kThree), Grade::kFail);
  EXPECT_EQ(worst({}), Grade::kOk);
}

TEST(Findings, AreEncodedAsJson) {
  EXPECT_EQ(*findings_from_json(to_json(kThree)), kThree);
  EXPECT_EQ(findings_from_json(to_json({{Grade::kOk, "x", "\xff", ""}}))->size(), 1u);  // no UTF-8
  for (const char* broken : {"", "{}", "[1]", "[{}]", R"([{"grade":"FINE","subject":"","fact":"","fix":""}])",
                             R"([{"grade":"OK","subject":1,"fact":"","fix":""}])"})
    EXPECT_EQ(findings_from_json(broken).status().error().code, Code::kCorrupt) << broken;
}

}  // namespace
}  // namespace tutti::doctor
