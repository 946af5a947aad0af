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

// The agent must not wait for its reader, and the words for people come first.
TEST(Logs, APipeInThePlaceOfTheReportDelaysNoRank) {
  const Folder folder;
  const std::string report = folder.path() + "/j/attempt_0/report.json", other = folder.path() + "/other.json";
  const Ended ended = run({"run", "-q", "--log-dir", folder.path(), "--job-id", "j", "--report", other, "--", "/bin/sh",
                           "-c", "mkfifo " + report + " " + other + "; exit 4"});
  EXPECT_EQ(ended.code, 4);
  EXPECT_THAT(ended.err, HasSubstr("the job failed: rank 0 (pid "));
  for (const std::string& path : {report, other})
    EXPECT_EQ(nlohmann::json::parse(read_file(path))["exit_code"], 4) << path;
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

// As torchrun means them: --redirects takes a stream from the console, --tee keeps it there all the same.
TEST(Logs, RedirectsAndTeeByLocalRank) {
  const Folder folder;
  const std::string logs = folder.path() + "/j/attempt_0/rank_";
  const Ended ended = run({"run", "-n", "3", "-q", "--log-dir", folder.path(), "--job-id", "j", "--redirects",
                           "0:3,1:3", "-t", "0:2,2:3", worker(), "print"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.out, AllOf(Not(HasSubstr("[0] ")), Not(HasSubstr("[1] ")), HasSubstr("[2] out 2\n")));
  EXPECT_THAT(ended.err, AllOf(HasSubstr("[0] err 0\n"), Not(HasSubstr("[1] ")), HasSubstr("[2] err 2\n")));
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_THAT(read_file(logs + rank + "/stdout.log"), HasSubstr("out " + std::string(rank))) << "files have it all";
    EXPECT_EQ(read_file(logs + rank + "/stderr.log"), "err " + std::string(rank) + "\n");
  }
}

TEST(Logs, RedirectsWithoutALogFolderMakeOne) {
  const Folder temporary;
  const Ended ended =
      run({"run", "-q", "--job-id", "j", worker(), "print"}, {{"TMPDIR", temporary.path()}, {"PET_REDIRECTS", "1"}});
  EXPECT_EQ(ended.out, "");
  const std::string says = "the logs of --tee and --redirects are in ";
  ASSERT_THAT(ended.err, AllOf(HasSubstr("[0] err 0\n"), HasSubstr(says)));
  const std::string rest = ended.err.substr(ended.err.find(says) + says.size());
  const std::string logs = rest.substr(0, rest.find(' '));
  EXPECT_THAT(logs, HasSubstr(temporary.path() + "/tutti-logs_"));
  EXPECT_THAT(read_file(logs + "/j/attempt_0/rank_0/stdout.log"), HasSubstr("out 0\n"));
}

TEST(Logs, ShowTheseLocalRanksAlone) {
  const Ended ended =
      run({"run", "-n", "3", "-q", "--local-ranks-filter", "0,2", "--quiet-ranks", "0", worker(), "print"});
  EXPECT_THAT(ended.out, AllOf(Not(HasSubstr("[0] ")), Not(HasSubstr("[1] ")), HasSubstr("[2] out 2\n")));
  const Ended by_variable = run({"run", "-n", "2", "-q", worker(), "print"}, {{"PET_LOCAL_RANKS_FILTER", "1"}});
  EXPECT_THAT(by_variable.out, AllOf(Not(HasSubstr("[0] ")), HasSubstr("[1] out 1\n")));
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
              HasSubstr("--log-format json works on lines, and --no-prefix passes bytes on unchanged"));
  const std::string needs =
      " needs 0 (none), 1 (stdout), 2 (stderr) or 3 (both), for all ranks or by local rank such as "
      "0:3,2:1, not ";
  EXPECT_THAT(refused({"--tee", "4"}), HasSubstr("--tee" + needs + "'4'"));
  EXPECT_THAT(refused({"-r", "0:1,x:2"}), HasSubstr("--redirects" + needs + "'0:1,x:2'"));
  EXPECT_THAT(refused({"--local-ranks-filter", "0;1"}),
              HasSubstr("--local-ranks-filter needs ranks such as 0,2,5-7, not '0;1'"));
  EXPECT_THAT(refused({"--local-ranks-filter", "1"}),
              HasSubstr("--local-ranks-filter names local rank 1, but the job has 1 rank"));
  EXPECT_THAT(refused({"-n", "2", "--redirects", "7:3"}),
              HasSubstr("--redirects names local rank 7, but the job has 2 ranks"));
  EXPECT_THAT(refused({"-n", "2", "--tee", "0:1,2:1"}), HasSubstr("--tee names local rank 2, but the job has 2 ranks"));
  EXPECT_THAT(
      refused({"-n", "2,3", "--node-rank", "1", "--master-addr", "127.0.0.1", "--insecure", "--redirects", "3:3"}),
      HasSubstr("--redirects names local rank 3, but no node has more than 3 ranks"));
  EXPECT_THAT(run({"run", worker(), "print"}, {{"PET_TEE", "all"}}).err,
              HasSubstr("PET_TEE is 'all' in the environment"));
  EXPECT_THAT(refused({"--level", "warn", "--no-prefix"}), HasSubstr("--level works on lines"));
}

}  // namespace
}  // namespace tutti::testing
