// The --help of every command and program as a user sees it: found by asking, so that a new command is not forgotten.
#include <gmock/gmock.h>

#include "tests/launch/running.h"
#include "tutti/base/text.h"

namespace tutti::cli {
namespace {

using testing::Ended;
using testing::run;
using Words = std::vector<std::string>;

Ended help_of(Words command, const std::string& columns) {
  command.emplace_back("--help");
  return run(command, {{"COLUMNS", columns}});
}

// The names in the first column under "Commands:".
std::vector<std::string> commands_in(const std::string& help) {
  std::vector<std::string> names;
  bool is_list = false;
  for (const std::string& line : split(help, '\n')) {
    if (is_list && line.starts_with("  ") && line[2] != ' ') names.push_back(line.substr(2, line.find(' ', 2) - 2));
    is_list = line == "Commands:" || (is_list && !line.empty());
  }
  return names;
}

void add_commands(const Words& command, std::vector<Words>& found) {
  found.push_back(command);
  for (const std::string& name : commands_in(help_of(command, "1000").out)) {
    Words deeper = command;
    deeper.push_back(name);
    add_commands(deeper, found);
  }
}

std::vector<Words> all_commands() {
  std::vector<Words> found;
  add_commands({TUTTI_COMMAND}, found);
  found.push_back({TUTTI_COMMAND, "trace", "merge"});
  found.push_back({TUTTI_COMMAND, "plan", "pipeline"});
  for (const std::string& program : split(TUTTI_PROGRAMS, '|')) found.push_back({program});
  return found;
}

TEST(EveryHelp, FitsItsWidth) {
  const std::vector<Words> commands = all_commands();
  ASSERT_GT(commands.size(), 30u) << "they are read from the help of tutti, tutti data and tutti ckpt";
  for (const Words& command : commands) {
    for (const std::size_t width : {96, 60}) {
      SCOPED_TRACE(join(command, " ") + " at " + std::to_string(width));
      const Ended ended = help_of(command, std::to_string(width));
      EXPECT_EQ(ended.code, 0);
      EXPECT_EQ(ended.err, "");
      EXPECT_THAT(ended.out, ::testing::HasSubstr("\nUsage: "));
      for (const std::string& line : split(ended.out, '\n')) {
        const bool is_one_word = trim(line).find(' ') == std::string_view::npos;
        EXPECT_TRUE(line.size() <= width || is_one_word) << line.size() << " columns: " << line;
        EXPECT_FALSE(line.ends_with(' ')) << "'" << line << "'";
      }
      EXPECT_EQ(ended.out.find("\n\n\n"), std::string::npos);
    }
  }
}

TEST(EveryHelp, OffATerminalIs96ColumnsWide) {
  const Ended usual = run({TUTTI_COMMAND, "run", "--help"}, {{"COLUMNS", ""}});
  EXPECT_EQ(usual.out, help_of({TUTTI_COMMAND, "run"}, "96").out);
  EXPECT_NE(usual.out, help_of({TUTTI_COMMAND, "run"}, "60").out);
}

// What was asked for was too little: the synopsis, an example, and where to read more.
TEST(EveryHelp, ACommandWithoutItsArgumentsPrintsItsUsage) {
  struct Asked {
    Words words;
    const char* what;
  };
  for (const auto& [words, what] : std::vector<Asked>{
           {{"run"}, "program"},
           {{"bench"}, "operation"},
           {{"plan"}, "verb"},
           {{"plan", "all_reduce"}, "--ranks"},
           {{"plan", "pipeline"}, "--stages"},
           {{"plan", "pipeline", "--stages", "4"}, "--microbatches"},
           {{"data", "criteo"}, "input"},
           {{"data", "tokenize"}, "input"},
           {{"data", "bpe"}, "input"},
           {{"ckpt", "ls"}, "path"},
           {{"ckpt", "show"}, "path"},
           {{"ckpt", "verify"}, "path"},
           {{"ckpt", "diff", "a"}, "two paths"},
           {{"ckpt", "extract"}, "path"},
           {{"ckpt", "reshard", "a"}, "output"},
           {{"ckpt", "reshard", "a", "b"}, "--ranks"},
           {{"ckpt", "merge"}, "path"},
           {{"ckpt", "prune"}, "folder"},
           {{"ckpt", "prune", "a"}, "--keep"},
           {{"ckpt", "import", "a"}, "output"},
           {{"ckpt", "gpt2"}, "path"},
           {{"flight"}, "folder"},
           {{"trace", "merge"}, "trace"},
       }) {
    Words command = {TUTTI_COMMAND};
    command.insert(command.end(), words.begin(), words.end());
    SCOPED_TRACE(join(words, " "));
    const Ended ended = run(command);
    EXPECT_EQ(ended.code, 2);
    EXPECT_EQ(ended.out, "");
    EXPECT_THAT(ended.err,
                ::testing::MatchesRegex("tutti [a-z0-9 ]+: no " + std::string(what) + " given\\. Usage: tutti " +
                                        words[0] + " .+\nhint: for example: tutti " + words[0] + " .+; tutti " +
                                        words[0] + ".* --help explains the options\n"));
  }
}

}  // namespace
}  // namespace tutti::cli
