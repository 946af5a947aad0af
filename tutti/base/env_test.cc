#include "tutti/base/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tutti/base/env.h"

namespace tutti {

namespace {

using testing::HasSubstr;

constexpr const char* kName = "TUTTI_BASE_TEST_VARIABLE";

class Env : public testing::Test {
 protected:
  void TearDown() override { ::unsetenv(kName); }
  static void set(const char* value) { ::setenv(kName, value, 1); }
};

TEST_F(Env, EmptyCountsAsUnset) {
  EXPECT_EQ(env(kName), std::nullopt);
  set("");
  EXPECT_EQ(env(kName), std::nullopt);
  EXPECT_EQ(*env_seconds(kName), std::nullopt);
  EXPECT_TRUE(*env_flag(kName, true));
  EXPECT_FALSE(*env_flag(kName, false));
  set("x");
  EXPECT_EQ(env(kName), "x");
}

TEST_F(Env, ReadsDurations) {
  set("5min");
  EXPECT_EQ(*env_seconds(kName), 300.0);
}

TEST_F(Env, ReadsFlags) {
  for (const char* yes : {"1", "true", "yes", "on"}) {
    set(yes);
    EXPECT_TRUE(*env_flag(kName, false)) << yes;
  }
  for (const char* no : {"0", "false", "no", "off"}) {
    set(no);
    EXPECT_FALSE(*env_flag(kName, true)) << no;
  }
}

TEST_F(Env, ParseErrorsNameTheVariableItsValueAndTheExpectedForm) {
  set("four");
  const auto duration = env_seconds(kName);
  ASSERT_FALSE(duration.ok());
  EXPECT_EQ(duration.error().code, Code::kUsage);
  EXPECT_EQ(to_string(duration.error()),
            "Usage: the environment variable TUTTI_BASE_TEST_VARIABLE is \"four\", expected a duration such as 30s, "
            "250ms or 5min");
  EXPECT_THAT(to_string(env_flag(kName, false).error()), HasSubstr("is \"four\", expected 1 or 0"));
}

TEST_F(Env, IsAlsoAValue) {
  set("a=b");
  EXPECT_EQ(current_environment().at(kName), "a=b");
}

}  // namespace

namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Variables, AMisspeltNameIsReportedWithTheNearest) {
  EXPECT_THAT(misspelt_variables({{"TUTTI_TIMEOUTS", "1s"}, {"TUTTI_TRANSPROT", "tcp"}}),
              ElementsAre("TUTTI_TIMEOUTS is no variable of tutti and means nothing (did you mean TUTTI_TIMEOUT?)",
                          "TUTTI_TRANSPROT is no variable of tutti and means nothing (did you mean TUTTI_TRANSPORT?)"));
}

TEST(Variables, UnrelatedNamesAreIgnored) {
  Environment environment = {{"TUTTI_ROOT", "/opt"}, {"TUTTI_HOME", "/opt"}, {"TUTTI_PYTHON", "python3"},
                             {"TUTTI_", "x"},        {"TIMEOUTS", "1s"},     {"MY_TUTTI_TIMEOUTS", "1s"}};
  for (const std::string& name : known_variables()) environment["TUTTI_" + name] = "x";
  EXPECT_THAT(misspelt_variables(environment), IsEmpty());
}

}  // namespace

}  // namespace tutti
