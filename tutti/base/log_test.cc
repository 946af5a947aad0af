#include "tutti/base/log.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tutti/base/log.h"

namespace tutti {

namespace {

// The level is read once per process, so each case runs in its own process.
class Log : public testing::Test {
 protected:
  Log() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  [[noreturn]] static void speak(const char* level) {
    ::setenv("TUTTI_LOG", level, 1);
    log::debug("a detail");
    log::info("a fact");
    log::error("a mishap");
    std::exit(0);
  }
};

TEST_F(Log, LevelComesFromTheVariable) {
  EXPECT_EXIT(speak("debug"), testing::ExitedWithCode(0), "^.tutti. a detail\n.tutti. a fact\n.tutti. a mishap\n$");
  EXPECT_EXIT(speak(""), testing::ExitedWithCode(0), "^.tutti. a fact\n.tutti. a mishap\n$");
  EXPECT_EXIT(speak("error"), testing::ExitedWithCode(0), "^.tutti. a mishap\n$");
  EXPECT_EXIT(speak("off"), testing::ExitedWithCode(0), "^$");
}

TEST_F(Log, UnknownLevelIsReportedAndSilencesNothing) {
  EXPECT_EXIT(
      speak("verbose"), testing::ExitedWithCode(0),
      "^.tutti. TUTTI_LOG says \"verbose\", expected debug, info, warn, error or off, or the topic select: this word "
      "is ignored\n"
      ".tutti. a fact\n.tutti. a mishap\n$");
}

TEST_F(Log, WarningsThatPeersCauseAreLimited) {
  const auto knock = [] {
    log::FewWarnings warnings("knocks");
    const Clock::time_point begin{std::chrono::hours(1)};
    for (int i = 0; i < 9; ++i) warnings.warn("knock " + std::to_string(i), begin + std::chrono::seconds(i));
    warnings.warn("the next", begin + std::chrono::seconds(11));
    std::exit(0);
  };
  EXPECT_EXIT(knock(), testing::ExitedWithCode(0),
              "^.tutti. knock 0\n.tutti. knock 1\n.tutti. knock 2\n.tutti. knock 3\n.tutti. knock 4\n"
              ".tutti. there were 4 more knocks\n.tutti. the next\n$");
}

TEST_F(Log, AnUnknownLevelIsReportedOnRequest) {
  const auto begin = [](const char* level) {
    ::setenv("TUTTI_LOG", level, 1);
    log::tell_of_setting();
    log::tell_of_setting();
    std::exit(log::check_setting().ok() ? 0 : 3);
  };
  EXPECT_EXIT(begin("warn,loud"), testing::ExitedWithCode(3), "^.tutti. TUTTI_LOG says \"loud\", [^\n]*is ignored\n$");
  EXPECT_EXIT(begin("warn,select"), testing::ExitedWithCode(0), "^$");
}

}  // namespace

}  // namespace tutti
