#include "apps/options/help_text.h"

#include <gmock/gmock.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "tutti/base/text.h"

namespace tutti::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kNoTerminal = -1;

TEST(HelpWidth, IsThatOfTheTerminalWhateverColumnsSays) {
  winsize window{.ws_row = 24, .ws_col = 123};
  int terminal = -1, program = -1;
  ASSERT_EQ(::openpty(&terminal, &program, nullptr, nullptr, &window), 0);
  EXPECT_EQ(help_width(program, "80"), 123u);
  window.ws_col = 10;
  ASSERT_EQ(::ioctl(terminal, TIOCSWINSZ, &window), 0);
  EXPECT_EQ(help_width(program, {}), 40u) << "the lower bound";
  window.ws_col = 0;  // a terminal that does not know its size
  ASSERT_EQ(::ioctl(terminal, TIOCSWINSZ, &window), 0);
  EXPECT_EQ(help_width(program, "80"), 80u);
  ::close(program);
  ::close(terminal);
}

TEST(HelpWidth, WithoutATerminalIsThatOfColumnsIfItIsSaneElse96) {
  EXPECT_EQ(help_width(kNoTerminal, {}), 96u);
  EXPECT_EQ(help_width(kNoTerminal, "72"), 72u);
  EXPECT_EQ(help_width(kNoTerminal, "3"), 40u);
  for (const char* odd : {"", "0", "-5", "wide", "80x", "10001", "99999999999999999999"})
    EXPECT_EQ(help_width(kNoTerminal, odd), 96u) << odd;
}

TEST(HelpText, ProseIsJoinedAndWrapped) {
  EXPECT_EQ(laid_out("One two\nthree four five.\n\nSix.", 14), "One two three\nfour five.\n\nSix.\n");
  EXPECT_EQ(laid_out("\nA https://a.long.address/of/no/width b\n", 12), "A\nhttps://a.long.address/of/no/width\nb\n");
  EXPECT_EQ(laid_out("\n", 40), "");
  EXPECT_THAT(wrapped("a bb ccc", 4, 2), ElementsAre("a bb", "  ccc"));
}

TEST(HelpText, ACommandThatFitsStaysWhole) {
  EXPECT_EQ(laid_out("Examples:\n  run -n 4 ./train\n  run   left\n", 18),
            "Examples:\n  run -n 4 ./train\n  run  left\n");
}

TEST(HelpText, ACommandThatDoesNotFitIsContinuedAsAShellReadsIt) {
  const std::string source =
      "  train --layers 12 --path a --flag\n      --text 'two words' && look";  // the source breaks it as well
  EXPECT_EQ(laid_out(source, 100), "  train --layers 12 --path a --flag --text 'two words' && look\n");
  EXPECT_EQ(laid_out(source, 24),
            "  train --layers 12 \\\n"
            "      --path a --flag \\\n"
            "      --text \\\n"
            "      'two words' && \\\n"
            "      look\n");
}

TEST(HelpText, NotesStandBesideKeysWhereThereIsRoomElseBelow) {
  const std::string codes = "  0  all ended well\n  75  told to stop\n";
  EXPECT_EQ(laid_out(codes, 40), "  0   all ended well\n  75  told to stop\n");
  EXPECT_EQ(laid_out(codes, 18), "  0   all ended\n      well\n  75  told to stop\n") << "hanging";
  const std::string commands = "  tutti run a    starts a\n  tutti b    and b\n";
  EXPECT_EQ(laid_out(commands, 40), "  tutti run a  starts a\n  tutti b      and b\n");
  EXPECT_EQ(laid_out(commands, 20), "  tutti run a\n      starts a\n  tutti b\n      and b\n");
  EXPECT_EQ(laid_out("  2  wrong usage, or\n     no file\n", 40), "  2  wrong usage, or no file\n");
}

TEST(HelpText, ALongNameHasALineOfItsOwn) {
  EXPECT_EQ(two_columns({{"-n N", "ranks per node"}, {"--very-long-name N", "what it is for"}}, 8, 30),
            "  -n N  ranks per node\n"
            "  --very-long-name N\n"
            "        what it is for\n");
  EXPECT_EQ(two_columns({{"-n N", "ranks per node"}}, 8, 18), "  -n N  ranks per\n        node\n");
  EXPECT_EQ(two_columns({{"-n N", ""}}, 8, 30), "  -n N\n");
}

struct Small {
  Small() {
    set_help(app, kFooter);
    app.add_option("FILE", file, "what to read");
    app.add_option("--max-size,--max_size", size, "limit in bytes")->type_name("N")->group("Limits");
    app.add_flag("--quiet", quiet, "print nothing")->group("Limits");
    app.add_flag("--secret", quiet)->group("");
  }
  static constexpr const char* kFooter = R"(
Reads the file
and prints it.

Examples:
  small FILE --max-size 3    the first three
)";
  CLI::App app{"Prints a file.", "small"};
  std::string file, size;
  bool quiet = false;
};

TEST(HelpText, OfACommand) {
  EXPECT_EQ(help_text(Small().app, "", 60),
            "Prints a file.\n"
            "Usage: small [OPTIONS] FILE\n"
            "\n"
            "Arguments:\n"
            "  FILE          what to read\n"
            "\n"
            "Options:\n"
            "  -h,--help     print this help\n"
            "\n"
            "Limits:\n"
            "  --max-size N  limit in bytes\n"
            "  --quiet       print nothing\n"
            "\n"
            "Reads the file and prints it.\n"
            "\n"
            "Examples:\n"
            "  small FILE --max-size 3  the first three\n");
  EXPECT_THAT(help_text(Small().app, "small FILE [OPTIONS]", 60), HasSubstr("Usage: small FILE [OPTIONS]\n"));
}

}  // namespace
}  // namespace tutti::cli
