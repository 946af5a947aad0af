#include <gmock/gmock.h>

#include "tests/launch/running.h"
#include "tutti/base/error.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

tutti::testing::Ended explain(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "explain");
  return tutti::testing::run(arguments);
}

TEST(Explain, EveryCodeHasCausesAndRemedies) {
  for (int code = 0; code <= int(Code::kInternal); ++code) {
    const std::string word = name(Code(code));
    const auto ended = explain({word});
    EXPECT_EQ(ended.code, 0) << word;
    EXPECT_THAT(ended.out, AllOf(HasSubstr(word + ": "), HasSubstr("Usual causes:\n  - "), HasSubstr("What to do:\n"),
                                 HasSubstr("\nMore: ")));
    EXPECT_THAT(explain({}).out, HasSubstr(word));
  }
}

TEST(Explain, AMistypedCodeIsAnsweredWithTheNearest) {
  const auto ended = explain({"PerLost"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("did you mean PeerLost?"));
}

}  // namespace
}  // namespace tutti
