#pragma once
// A subcommand of `tutti` is one file: it defines a function of this shape, main.cc lists it in its table.
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tutti::cli {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(std::vector<std::string> arguments);  // without "tutti" and the command's name; returns the exit code
};

int run_command(std::vector<std::string> arguments);
int bench_command(std::vector<std::string> arguments);

// Parses `arguments` into what was bound to `app`. An exit code if there is nothing left to do: 0 after --help, 2 after
// a mistake, which has then been told on standard error together with the nearest known option.
std::optional<int> parse(CLI::App& app, std::vector<std::string> arguments);
// Tells an error as "command: sentence", with its hint on a line of its own.
void tell(const std::string& command, const Error& error);

}  // namespace tutti::cli
