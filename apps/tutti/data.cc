// tutti data COMMAND: datasets for the trainers. The table below is the list of commands.
#include <cstdio>

#include "apps/tutti/command.h"
#include "apps/tutti/data_commands.h"
#include "tutti/base/text.h"

namespace tutti::cli {
namespace {

constexpr Command kCommands[] = {
    {"criteo", "Criteo's raw text, Kaggle or Terabyte, to a packed file", data_criteo_command},
    {"clicks", "data in the shape of Criteo's that can be learned, and how well at best", data_clicks_command},
    {"trace", "profile a trace of accesses to a table, for synthetic clicks", data_trace_command},
};

void print_help() {
  std::puts("tutti data: datasets for the trainers\n\nUsage: tutti data COMMAND [OPTIONS]\n\nCommands:");
  for (const Command& command : kCommands) std::printf("  %-10s %s\n", command.name, command.summary);
  std::puts(
      "\nOptions:\n  -h, --help   this text\n\n`tutti data COMMAND --help` explains a command. For example:\n"
      "  tutti data clicks --output clicks\n"
      "  tutti data criteo train.txt --output kaggle");
}

}  // namespace

int data_command(std::vector<std::string> arguments) {
  if (arguments.empty()) {
    print_help();
    return 2;
  }
  const std::string first = arguments[0];
  if (first == "-h" || first == "--help" || first == "help") {
    print_help();
    return 0;
  }
  std::vector<std::string> known = {"--help"};
  for (const Command& command : kCommands) {
    if (first == command.name) return command.run({arguments.begin() + 1, arguments.end()});
    known.emplace_back(command.name);
  }
  tell("tutti data", usage((first[0] == '-' ? "unknown option " : "unknown command ") + first,
                           did_you_mean(nearest(first, known), "tutti data --help lists the commands")));
  return 2;
}

}  // namespace tutti::cli
