#include "tutti/launch/reports/job_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tutti/launch/reports/report.h"

namespace tutti {
namespace {

using nlohmann::json;

TEST(JobReport, OfAJobThatEndedWell) {
  EXPECT_EQ(json::parse(job_report({.job = "j", .attempt = 1, .restarts = 1})),
            json::parse(R"({"job": "j", "outcome": "ended well", "code": 0, "restarts": 1, "attempt": 1})"));
  EXPECT_EQ(json::parse(job_report({.job = "j", .attempt = 0, .code = 75}))["outcome"], "saved");
}

TEST(JobReport, HasWhatTheNodeOfTheCulpritKnows) {
  const Failure failure{.culprit = {.rank = 2, .pid = 812, .exit = {.code = 7}}, .node = 1, .host = "b", .job = "j"};
  const json whole = json::parse(job_report({.job = "j",
                                             .attempt = 0,
                                             .code = 93,
                                             .failure = "rank 2 died",
                                             .rank = 2,
                                             .details = failure_json(failure, {failure.culprit})}));
  EXPECT_EQ(whole["outcome"], "failed");
  EXPECT_EQ(whole["code"], 93);
  EXPECT_EQ(whole["exit_code"], 7);
  EXPECT_EQ(whole["node"], 1);
  EXPECT_EQ(whole["host"], "b");
  EXPECT_EQ(whole["failure"], "rank 2 (pid 812 on b) exited with code 7");
  EXPECT_EQ(whole["ranks"][0]["role"], "culprit");
}

TEST(JobReport, WithoutThatItHasWhatIsKnownHere) {
  for (const std::string& details : {std::string(), std::string("{"), std::string("[1]"), std::string(100000, '[')}) {
    const json short_one = json::parse(
        job_report({.job = "j", .attempt = 0, .code = 4, .failure = "node 1 (b) is lost \xff", .details = details}));
    EXPECT_EQ(short_one["code"], 4);
    EXPECT_EQ(short_one["failure"], "node 1 (b) is lost \ufffd");
    EXPECT_FALSE(short_one.contains("rank"));
  }
}

}  // namespace
}  // namespace tutti
