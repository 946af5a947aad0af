#include "tutti/launch/output/traceback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/text.h"

namespace tutti::launch {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kOne =
    "Traceback (most recent call last):\n"
    "  File \"train.py\", line 3, in <module>\n"
    "    f()\n"
    "ValueError: the loss is NaN\n";

std::string message(const std::string& text) {
  Traceback traceback;
  for (const std::string& line : split(text, '\n')) traceback.add(line);
  return traceback.message();
}

const std::string kMessage = "ValueError: the loss is NaN\n" + std::string(trim(kOne));

TEST(Traceback, ItsExceptionComesFirst) {
  EXPECT_EQ(message("loss 3\n" + std::string(kOne)), kMessage);
  EXPECT_EQ(message("loss 3\nloss 4"), "");
}

TEST(Traceback, TheLastOneCounts) {
  EXPECT_EQ(message("Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 1\ncontinues\n" +
                    std::string(kOne)),
            kMessage);
}

TEST(Traceback, HasTheExceptionsThatLedToIt) {
  for (const std::string between : {"During handling of the above exception, another exception occurred:",
                                    "The above exception was the direct cause of the following exception:"}) {
    const std::string chain =
        "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 1\n\n" + between + "\n\n" + kOne;
    EXPECT_EQ(message("warning: x\n" + chain), "ValueError: the loss is NaN\n" + std::string(trim(chain)));
  }
}

TEST(Traceback, OfPyTorchHasNoPrefix) {
  EXPECT_EQ(message("[rank12]: Traceback (most recent call last):\n"
                    "[rank12]:   File \"train.py\", line 3, in <module>\n"
                    "[rank12]:     f()\n"
                    "[rank12]: ValueError: the loss is NaN\n"
                    "[rank12]:[W1121 12:00:00 ProcessGroup.cpp:1] destroy_process_group() was not called\n"
                    "a line of another library"),
            kMessage);
}

TEST(Traceback, HasNoColours) {
  EXPECT_EQ(message("Traceback (most recent call last):\n"
                    "  File \033[35m\"train.py\"\033[0m, line \033[35m3\033[0m, in \033[35m<module>\033[0m\n"
                    "    \033[31mf\033[0m\033[1;31m()\033[0m\n"
                    "\033[1;35mValueError\033[0m: \033[35mthe loss is NaN\033[0m"),
            kMessage);
}

TEST(Traceback, HasAllLinesOfTheException) {
  EXPECT_EQ(message(std::string(kOne) + "\tsize mismatch for a\n\nException raised from b"),
            kMessage + "\n\tsize mismatch for a\n\nException raised from b");
}

TEST(Traceback, EndsAtALineOfALog) {
  EXPECT_EQ(message(std::string(kOne) + "WARNING:root:no more samples\nmore"), kMessage);
}

TEST(Traceback, OfAnExceptionThatEndsNoProgramIsSkipped) {
  const std::string another = "\nTraceback (most recent call last):\n  File \"a.py\", line 1\nTypeError: none\n";
  for (const std::string& before :
       {"Exception ignored in: <function f>" + another, "Exception in thread 1:" + another}) {
    EXPECT_EQ(message(before), "");
    EXPECT_EQ(message(before + kOne), kMessage);
    EXPECT_EQ(message(kOne + before), kMessage);
  }
}

TEST(Traceback, AfterWhichTheProgramContinuedIsSkipped) {
  std::string more;
  for (int i = 0; i < 200; ++i) more += "step " + std::to_string(i) + "\n";
  EXPECT_EQ(message(kOne + more), "");
  EXPECT_EQ(message(kOne + more + kOne), kMessage);
}

TEST(Traceback, OfAProgramThatDoesNotCompileHasNoHeader) {
  const std::string text = "  File \"train.py\", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax";
  EXPECT_EQ(message(text), "SyntaxError: invalid syntax\n" + text);
  EXPECT_EQ(message("Thread 0x1 (most recent call first):\n  File \"a.py\", line 1 in f\nstep 3"), "");
  EXPECT_EQ(message("  File \"a.py\", line 1 in f\nstep 3"), "");
}

TEST(Traceback, ThatIsCutShortIsNone) {
  EXPECT_EQ(message("Traceback (most recent call last):\n  File \"a.py\", line 1"), "");
}

TEST(Traceback, OfALongOneTheBeginningAndTheEndStay) {
  std::string frames;
  for (int i = 0; i < 100'000; ++i) frames += "  File \"a.py\", line " + std::to_string(i) + "\n";
  const std::string text =
      message("Traceback (most recent call last):\n" + frames + "ValueError: " + std::string(50'000, 'x'));
  EXPECT_THAT(text, AllOf(StartsWith("ValueError: xxx"), HasSubstr("line 0\n"), HasSubstr(" lines skipped)\n"),
                          HasSubstr("line 99999\nValueError: "), EndsWith("xxx"), Not(HasSubstr("line 50000\n"))));
  EXPECT_LT(text.size(), 10'000u);
}

}  // namespace
}  // namespace tutti::launch
