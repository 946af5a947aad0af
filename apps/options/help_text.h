#pragma once
// The text of --help, wrapped at the width of the terminal.
//
// A footer has a small layout. Lines that begin in the first column are prose: they are joined to paragraphs and
// wrapped. An indented line is a row: a KEY, or a KEY and a NOTE with two spaces or more between them, such as a
// command and what it does. Lines that are indented deeper continue the row above. A key that is wider than the help is
// broken with backslashes, so that a shell still reads one command.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tutti::cli {

// Columns that a help may take: of the terminal that `fd` is, else `columns` (the variable COLUMNS) if that is a number
// from 1 to 10000, else 96. At least 40.
std::size_t help_width(int fd, const std::optional<std::string>& columns);
// The same for standard output and the environment of this process.
std::size_t help_width();

// Prose, whose lines after the first begin with `indent` spaces. No line ends in a newline.
std::vector<std::string> wrapped(std::string_view text, std::size_t width, std::size_t indent = 0);
// A text in the layout above. It ends in a newline, unless it is empty.
std::string laid_out(std::string_view text, std::size_t width);

// Names in one column, what they mean in another, from `column` on. Longer names have a line of their own.
struct NamedLine {
  std::string name, meaning;
};
std::string two_columns(const std::vector<NamedLine>& lines, std::size_t column, std::size_t width);
// Where the second column begins: right behind the names, and in the first third of the line.
std::size_t second_column(const std::vector<NamedLine>& lines, std::size_t width);

// `usage` is the command's synopsis without "Usage: "; where it is empty, it is made of the name and the positionals.
std::string help_text(const CLI::App& app, const std::string& usage, std::size_t width);

// "-n,--nproc,--nproc-per-node": the spellings with '_' are for scripts of other launchers.
std::vector<std::string> shown_names(const CLI::Option& option);

// Gives `app` its -h and --help, with a footer in the layout above.
void set_help(CLI::App& app, const char* footer, std::string usage = {});

}  // namespace tutti::cli
