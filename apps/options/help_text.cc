#include "apps/options/help_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <utility>

#include "tutti/base/env.h"
#include "tutti/base/text.h"

namespace tutti::cli {
namespace {

constexpr std::size_t kUsualWidth = 96, kLeastWidth = 40, kMostWidth = 10000;
constexpr std::size_t kIndent = 2;           // of rows and options
constexpr std::size_t kGap = 2;              // between two columns
constexpr std::size_t kMostNameColumn = 32;  // the rest of the line is for what the names mean

std::string spaces(std::size_t count) { return std::string(count, ' '); }

// A line of an indented block.
struct Row {
  std::size_t indent;
  std::string key, note;
};

Row row_of(std::string_view line) {
  const std::size_t indent = line.find_first_not_of(' ');
  const std::string_view text = line.substr(indent);
  const std::size_t gap = text.find("  ");
  if (gap == std::string_view::npos) return {indent, std::string(text), {}};
  return {indent, std::string(text.substr(0, gap)), std::string(trim(text.substr(gap)))};
}

// What a deeper line adds to its row: to the note, or to a command that the source breaks.
void add_to(Row& row, std::string_view line) {
  std::string& target = row.note.empty() ? row.key : row.note;
  if (target.ends_with('\\')) target = trim(target.substr(0, target.size() - 1));
  target += " " + std::string(trim(line));
}

// The words of a command. Quoted text is one word, and an option keeps its value where both fit in `most` columns.
std::vector<std::string> units_of(std::string_view command, std::size_t most) {
  std::vector<std::string> words;
  bool is_open = false;
  char quote = 0;
  for (const char c : command) {
    if (c == ' ' && quote == 0) {
      is_open = false;
      continue;
    }
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    }
    if (!is_open) words.emplace_back();
    is_open = true;
    words.back() += c;
  }
  std::vector<std::string> units;
  for (const std::string& word : words) {
    const bool is_value =
        !units.empty() && units.back().starts_with('-') && units.back().find(' ') == std::string::npos;
    const bool fits = is_value && units.back().size() + 1 + word.size() <= most;
    if (fits && !word.starts_with('-') && word != "&&") {
      units.back() += " " + word;
    } else {
      units.push_back(word);
    }
  }
  return units;
}

std::string broken_command(const Row& row, std::size_t width) {
  constexpr std::string_view kContinued = " \\";
  std::string out, line = spaces(row.indent);
  bool is_empty = true;
  for (const std::string& unit : units_of(row.key, width - std::min(width, row.indent + 4 + kContinued.size()))) {
    if (!is_empty && line.size() + 1 + unit.size() + kContinued.size() > width) {
      out += line + std::string(kContinued) + "\n";
      line = spaces(row.indent + 4);
      is_empty = true;
    }
    line += (is_empty ? "" : " ") + unit;
    is_empty = false;
  }
  return out + line + "\n";
}

// A note below or beside its key: `at` is the column in which it begins.
std::string hanging(const std::string& before, const std::string& note, std::size_t at, std::size_t width) {
  std::string out, line = before + spaces(at > before.size() ? at - before.size() : 0);
  for (const std::string& part : wrapped(note, width - at)) {
    out += line + part + "\n";
    line = spaces(at);
  }
  return out;
}

std::string block_text(const std::vector<Row>& rows, std::size_t width) {
  std::size_t widest = 0;
  for (const Row& row : rows)
    if (!row.note.empty()) widest = std::max(widest, row.indent + row.key.size());
  const std::size_t column = widest + kGap;
  const bool all_fit = std::all_of(
      rows.begin(), rows.end(), [&](const Row& row) { return row.note.empty() || column + row.note.size() <= width; });
  const bool beside = all_fit || column <= width / 3;
  std::string out;
  for (const Row& row : rows) {
    const std::string key = spaces(row.indent) + row.key;
    if (!row.note.empty() && beside) {
      out += hanging(key, row.note, column, width);
      continue;
    }
    out += key.size() <= width ? key + "\n" : broken_command(row, width);
    if (!row.note.empty()) out += hanging("", row.note, row.indent + 4, width);
  }
  return out;
}

std::string names_and_type(const CLI::Option& option) {
  const std::string names = option.nonpositional() ? join(shown_names(option), ",") : option.get_name(true, false);
  if (option.get_type_size() == 0 || option.get_type_name().empty() || !option.nonpositional()) return names;
  const bool takes_several = option.get_allow_extra_args();
  return names + " " + option.get_type_name() + (takes_several ? " ..." : "");
}

std::vector<NamedLine> lines_of(const std::vector<const CLI::Option*>& options) {
  std::vector<NamedLine> lines;
  for (const CLI::Option* option : options) {
    const std::string &meaning = option->get_description(), by_default = option->get_default_str();
    lines.push_back({names_and_type(*option),
                     by_default.empty() ? meaning : meaning + (meaning.empty() ? "(" : " (") + by_default + ")"});
  }
  return lines;
}

std::string usage_of(const CLI::App& app) {
  std::string usage = app.get_name() + " [OPTIONS]";
  for (const CLI::Option* option : app.get_options())
    if (option->get_positional() && !option->nonpositional()) usage += " " + option->get_name(true, false);
  return usage;
}

class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::string usage) : usage_(std::move(usage)) {}
  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    return help_text(*app, usage_, help_width());
  }

 private:
  const std::string usage_;
};

}  // namespace

std::size_t help_width(int fd, const std::optional<std::string>& columns) {
  winsize window{};
  if (::isatty(fd) == 1 && ::ioctl(fd, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
    return std::max<std::size_t>(kLeastWidth, window.ws_col);
  const auto given = parse_int(columns.value_or(""));
  if (!given || *given < 1 || *given > std::int64_t(kMostWidth)) return kUsualWidth;
  return std::max(kLeastWidth, std::size_t(*given));
}

std::size_t help_width() { return help_width(STDOUT_FILENO, env("COLUMNS")); }

std::vector<std::string> wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  std::vector<std::string> lines(1);
  bool is_empty = true;  // the line, but for its indentation
  for (const std::string& word : split(text, ' ')) {
    if (word.empty()) continue;
    if (!is_empty && lines.back().size() + 1 + word.size() > width) {
      lines.push_back(spaces(indent));
      is_empty = true;
    }
    lines.back() += (is_empty ? "" : " ") + word;
    is_empty = false;
  }
  return lines;
}

std::string laid_out(std::string_view text, std::size_t width) {
  std::string out, prose;
  std::vector<Row> rows;
  const auto end_block = [&] {
    if (!prose.empty())
      for (const std::string& line : wrapped(prose, width)) out += line + "\n";
    out += block_text(rows, width);
    prose.clear();
    rows.clear();
  };
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  text = text.substr(0, text.find_last_not_of('\n') + 1);
  for (const std::string& line : split(text, '\n')) {
    if (trim(line).empty()) {
      end_block();
      out += "\n";
    } else if (line[0] != ' ') {
      if (!rows.empty()) end_block();
      prose += (prose.empty() ? "" : " ") + line;
    } else {
      if (!prose.empty()) end_block();
      if (!rows.empty() && line.find_first_not_of(' ') > rows.back().indent) {
        add_to(rows.back(), line);
      } else {
        rows.push_back(row_of(line));
      }
    }
  }
  end_block();
  return trim(out).empty() ? std::string() : out;
}

std::size_t second_column(const std::vector<NamedLine>& lines, std::size_t width) {
  constexpr std::size_t kLeast = 8;
  std::size_t column = kLeast;
  for (const NamedLine& line : lines) {
    const std::size_t needed = kIndent + line.name.size() + kGap;
    if (needed <= std::min(kMostNameColumn, width / 3)) column = std::max(column, needed);
  }
  return column;
}

std::string two_columns(const std::vector<NamedLine>& lines, std::size_t column, std::size_t width) {
  std::string out;
  for (const auto& [name, meaning] : lines) {
    std::string before = spaces(kIndent) + name;
    if (before.size() + kGap > column || meaning.empty()) {
      for (const std::string& line : wrapped(name, width - kIndent)) out += spaces(kIndent) + line + "\n";
      before.clear();
    }
    if (!meaning.empty()) out += hanging(before, meaning, column, width);
  }
  return out;
}

std::vector<std::string> shown_names(const CLI::Option& option) {
  std::vector<std::string> names = split(option.get_name(false, true), ',');
  const auto is_alias = [](const std::string& name) { return name.find('_') != std::string::npos; };
  if (!std::all_of(names.begin(), names.end(), is_alias)) std::erase_if(names, is_alias);
  return names;
}

std::string help_text(const CLI::App& app, const std::string& usage, std::size_t width) {
  const auto options_in = [&](auto is_in) {
    return app.get_options([&](const CLI::Option* option) { return !option->get_group().empty() && is_in(*option); });
  };
  std::string out;
  for (const std::string& line : wrapped(app.get_description(), width)) out += line + "\n";
  const std::string synopsis = "Usage: " + (usage.empty() ? usage_of(app) : usage);
  for (const std::string& line : wrapped(synopsis, width, std::string_view("Usage: ").size())) out += line + "\n";
  const std::size_t column = second_column(lines_of(options_in([](const CLI::Option&) { return true; })), width);
  const auto add = [&](const std::string& title, const std::vector<const CLI::Option*>& options) {
    if (!options.empty()) out += "\n" + title + ":\n" + two_columns(lines_of(options), column, width);
  };
  add("Arguments", options_in([](const CLI::Option& option) { return !option.nonpositional(); }));
  for (const std::string& group : app.get_groups())
    add(group,
        options_in([&](const CLI::Option& option) { return option.nonpositional() && option.get_group() == group; }));
  const std::string footer = laid_out(app.get_footer(), width);
  return footer.empty() ? out : out + "\n" + footer;
}

void set_help(CLI::App& app, const char* footer, std::string usage) {
  app.set_help_flag("-h,--help", "print this help");
  app.footer(footer);
  app.formatter(std::make_shared<HelpFormatter>(std::move(usage)));
}

}  // namespace tutti::cli
