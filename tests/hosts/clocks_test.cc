// Hosts whose wall clocks are an hour apart: no decision hangs on them.
#include <csignal>

#include "tests/hosts/on_hosts.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Clocks : public OnHosts {
 protected:
  Clocks() : OnHosts(2) {}
  void SetUp() override {
    OnHosts::SetUp();
    if (!IsSkipped() && std::string(TUTTI_TEST_SKEWED_CLOCK).empty())
      GTEST_SKIP() << "a sanitizer's runtime has to be loaded before anything else, so no clock can be preloaded";
  }
  static std::map<std::string, std::string> ahead(long seconds) {
    return {{"LD_PRELOAD", TUTTI_TEST_SKEWED_CLOCK}, {"TUTTI_TEST_SKEW", std::to_string(seconds)}};
  }
};

TEST_F(Clocks, AnHourApartDoNotKeepAJobFromRunning) {
  for (const long skew : {3600, -3600}) {
    const Arguments program = {faulty(), "finish", "0", "200"};
    Running first = start(0, node(0, 2, "1", program)), second = start(1, node(1, 2, "1", program), ahead(skew));
    const Ended here = first.wait(), there = second.wait();
    EXPECT_EQ(here.code, 0) << here.err;
    EXPECT_EQ(there.code, 0) << there.err;
  }
}

TEST_F(Clocks, AnHourApartDoNotHideTheCause) {
  const Arguments program = {faulty(), "signal", "1", std::to_string(SIGSEGV)};
  Running first = start(0, node(0, 2, "1", program)), second = start(1, node(1, 2, "1", program), ahead(-3600));
  EXPECT_THAT(first.wait().err, HasSubstr("rank 1 (pid "));
  const Ended there = second.wait();
  EXPECT_EQ(there.code, 128 + SIGSEGV);
  EXPECT_THAT(there.err, AllOf(HasSubstr("the job failed: rank 1 (pid "), HasSubstr("was killed by SIGSEGV")));
}

TEST_F(Clocks, TheDoctorReportsHowFarApartTheyAre) {
  const auto doctor = [](const char* number) {
    return Arguments{"doctor", "--nnodes", "2", "--node-rank", number, "--master-addr", Hosts::address(0)};
  };
  Running second = start(1, doctor("1"), ahead(3600)), first = start(0, doctor("0"));
  const std::string told = first.wait().out;
  EXPECT_EQ(second.wait().out, told);
  EXPECT_THAT(line_with(told, "the clock of node-b is "),
              ::testing::MatchesRegex(
                  "WARN .*the clock of node-b is (1 h 0 min|60 min|59 min 59(\\.[0-9]+)? s) ahead of that of "
                  "node-a \\(fix: run an NTP client on both.*"));
}

}  // namespace
}  // namespace tutti::testing
