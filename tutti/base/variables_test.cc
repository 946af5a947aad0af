#include "tutti/base/variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Variables, AMisspeltOneIsToldWithTheNearest) {
  EXPECT_THAT(misspelt_variables({{"TUTTI_TIMEOUTS", "1s"}, {"TUTTI_TRANSPROT", "tcp"}}),
              ElementsAre("TUTTI_TIMEOUTS is no variable of tutti and means nothing (did you mean TUTTI_TIMEOUT?)",
                          "TUTTI_TRANSPROT is no variable of tutti and means nothing (did you mean TUTTI_TRANSPORT?)"));
}

TEST(Variables, NamesOfOthersAreNone) {
  Environment environment = {{"TUTTI_ROOT", "/opt"}, {"TUTTI_HOME", "/opt"}, {"TUTTI_PYTHON", "python3"},
                             {"TUTTI_", "x"},        {"TIMEOUTS", "1s"},     {"MY_TUTTI_TIMEOUTS", "1s"}};
  for (const std::string& name : known_variables()) environment["TUTTI_" + name] = "x";
  EXPECT_THAT(misspelt_variables(environment), IsEmpty());
}

}  // namespace
}  // namespace tutti
