#include "apps/tutti/command.h"

#include <fmt/core.h>

#include <cstdio>

#include "tutti/base/text.h"
#include "tutti/version.h"

namespace tutti::cli {
namespace {

void print_help(const CommandFamily& family) {
  fmt::print("{}: {}\n\nUsage: {} COMMAND [OPTIONS]\n\nCommands:\n", family.name, family.summary, family.name);
  for (const Command& command : family.commands) fmt::print("  {:<10} {}\n", command.name, command.summary);
  fmt::print("\nOptions:\n  -h, --help   this text\n\n`{} COMMAND --help` explains a command. {}\n", family.name,
             family.examples);
}

}  // namespace

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
  tell(family.name,
       usage((first[0] == '-' ? "unknown option " : "unknown command ") + first,
             did_you_mean(nearest(first, known), std::string(family.name) + " --help lists the commands")));
  return 2;
}

}  // namespace tutti::cli
