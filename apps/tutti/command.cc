#include "apps/tutti/command.h"

#include <fmt/core.h>

#include <cstdio>

#include "apps/options/help_text.h"
#include "tutti/base/text.h"
#include "tutti/version.h"

namespace tutti::cli {

void print_help(const CommandFamily& family) {
  const std::size_t width = help_width();
  std::vector<NamedLine> commands;
  for (const Command& command : family.commands)
    if (command.summary) commands.push_back({command.name, command.summary});
  const std::string head =
      fmt::format("{}: {}\n\nUsage: {} COMMAND [OPTIONS]", family.name, family.summary, family.name);
  const std::string foot = fmt::format("`{} COMMAND --help` explains a command. {}", family.name, family.examples);
  const std::vector<NamedLine> options = {{"-h,--help", "print this help"}, {"--version", "print the version"}};
  fmt::print("{}\nCommands:\n{}\nOptions:\n{}\n{}", laid_out(head, width),
             two_columns(commands, second_column(commands, width), width),
             two_columns(options, second_column(options, width), width), laid_out(foot, width));
}

int run_family(const CommandFamily& family, std::vector<std::string> arguments) {
  if (arguments.empty()) {
    print_help(family);
    return 2;
  }
  const std::string first = arguments[0];
  if (first == "-h" || first == "--help" || first == "help") {
    print_help(family);
    return 0;
  }
  if (first == "--version") {
    std::puts("tutti " TUTTI_VERSION);
    return 0;
  }
  std::vector<std::string> known = {"--help", "--version"};
  for (const Command& command : family.commands) {
    if (first == command.name) return command.run({arguments.begin() + 1, arguments.end()});
    known.emplace_back(command.name);
  }
  report(family.name,
       usage((first[0] == '-' ? "unknown option " : "unknown command ") + first,
             did_you_mean(nearest(first, known), std::string(family.name) + " --help lists the commands")));
  return 2;
}

}  // namespace tutti::cli
