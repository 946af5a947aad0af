// What the console shows of the ranks: filters by stream and level, lines as JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/launch/running.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Logs, ShowOneOfTheStreams) {
  const Folder folder;
  const Ended out =
      run({"run", "-q", "--show", "stdout", "--log-dir", folder.path(), "--job-id", "j", worker(), "print"});
  EXPECT_THAT(out.out, HasSubstr("[0] out 0\n"));
  EXPECT_EQ(out.err, "");
  EXPECT_EQ(read_file(folder.path() + "/j/attempt_0/rank_0/stderr.log"), "err 0\n");
  const Ended err = run({"run", "-q", "--show", "stderr", worker(), "print"});
  EXPECT_EQ(err.out, "");
  EXPECT_THAT(err.err, HasSubstr("[0] err 0\n"));
}

TEST(Logs, ShowWhatIsGraveEnough) {
  const Ended ended =
      run({"run", "-q", "--level", "warn", "--", "/bin/sh", "-c",
           "echo plain; echo 'INFO fine'; echo 'WARNING: slow'; echo last words >&2; echo DEBUG x >&2"});
  EXPECT_EQ(ended.out, "[0] WARNING: slow\n");
  EXPECT_EQ(ended.err, "[0] last words\n");
}

TEST(Logs, AreJsonOnRequest) {
  const Ended ended =
      run({"run", "-n", "2", "--log-format", "json", "--", "/bin/sh", "-c", "echo ERROR: $RANK; exit $RANK"});
  EXPECT_EQ(ended.code, 1);
  int of_ranks = 0, of_tutti = 0;
  for (const std::string& text : {ended.out, ended.err}) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, false);
      ASSERT_FALSE(json.is_discarded()) << line;
      if (json.contains("rank")) {
        ++of_ranks;
        EXPECT_EQ(json["stream"], "stdout");
        EXPECT_EQ(json["level"], "error");
        EXPECT_EQ(json["attempt"], 0);
        EXPECT_EQ(json["line"], "ERROR: " + std::to_string(json["rank"].get<int>()));
      } else {
        ++of_tutti;
        EXPECT_EQ(json["from"], "tutti");
      }
    }
  }
  EXPECT_EQ(of_ranks, 2);
  EXPECT_GT(of_tutti, 2);
  EXPECT_THAT(ended.err, HasSubstr("the job failed: rank 1 (pid "));
}

TEST(Logs, RefuseWhatTheyCannotDo) {
  const auto refused = [](std::vector<std::string> options) {
    options.insert(options.begin(), "run");
    options.insert(options.end(), {worker(), "print"});
    const Ended ended = run(options);
    EXPECT_EQ(ended.code, 2);
    return ended.err;
  };
  EXPECT_THAT(refused({"--show", "some"}), HasSubstr("--show needs all, stdout, stderr or none, not 'some'"));
  EXPECT_THAT(refused({"--level", "loud"}), HasSubstr("--level needs debug, info, warn or error, not 'loud'"));
  EXPECT_THAT(refused({"--log-format", "xml"}), HasSubstr("--log-format needs text or json, not 'xml'"));
  EXPECT_THAT(refused({"--log-format", "json", "--no-prefix"}),
              HasSubstr("--log-format json is about lines, and --no-prefix passes bytes on as they come"));
  EXPECT_THAT(refused({"--level", "warn", "--no-prefix"}), HasSubstr("--level is about lines"));
}

}  // namespace
}  // namespace tutti::testing
