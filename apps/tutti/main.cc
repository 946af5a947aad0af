// The command: `tutti COMMAND ...`. The table below is the list of commands.
#include <algorithm>
#include <cstdio>

#include "apps/options/report.h"
#include "apps/tutti/command.h"
#include "tutti/base/text.h"
#include "tutti/version.h"

namespace {

constexpr tutti::cli::Command kCommands[] = {
    {"run", "start a program as several ranks, on this host or on several", tutti::cli::run_command},
    {"status", "show the state of the ranks of a running job", tutti::cli::status_command},
    {"top", "live view of a running job", tutti::cli::top_command},
    {"bench", "measure collectives between ranks, from 8 bytes to 64 MB", tutti::cli::bench_command},
    {"plan",
     "predict a collective on thousands of ranks: its steps, its time, and whether it is right; draw a pipeline",
     tutti::cli::plan_command},
    {"data", "make datasets: text to tokens, Criteo's text packed, clicks that can be learned",
     tutti::cli::data_command},
    {"ckpt", "inspect, verify and convert checkpoints", tutti::cli::ckpt_command},
    {"flight", "explain a hang from flight-recorder files", tutti::cli::flight_command},
    {"trace", "merge the traces of many ranks into one timeline", tutti::cli::trace_command},
    {"doctor", "check that hosts are ready to run a job", tutti::cli::doctor_command},
    {"explain", "explain an error code: its causes, and what to do", tutti::cli::explain_command},
    {"env", "print version and system information for bug reports", tutti::cli::env_command},
    {"node", nullptr, tutti::cli::node_command},
};

void print_help() {
  tutti::cli::print_help({.name = "tutti",
                          .summary = "distributed training for C++",
                          .examples = "For example:\n  tutti run -n 4 ./train --epochs 3",
                          .commands = kCommands});
}

int unknown(const std::string& given) {
  std::vector<std::string> known = {"--help", "--version"};
  for (const auto& command : kCommands) known.emplace_back(command.name);
  tutti::cli::report("tutti",
                   {.code = tutti::Code::kUsage,
                    .detail = (given[0] == '-' ? "unknown option " : "unknown command ") + given,
                    .hint = tutti::did_you_mean(tutti::nearest(given, known),
                                                "to start a program: tutti run -n 4 ./program; tutti --help lists the "
                                                "commands")});
  return 2;
}

int act(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    print_help();
    return 2;
  }
  const std::string& first = arguments[0];
  if (first == "help" && arguments.size() > 1) {  // tutti help run: tutti run --help
    std::vector<std::string> asked(arguments.begin() + 1, arguments.end());
    asked.emplace_back("--help");
    return act(asked);
  }
  if (first == "-h" || first == "--help" || first == "help") {
    print_help();
    return 0;
  }
  if (first == "--version") {
    std::puts("tutti " TUTTI_VERSION);
    return 0;
  }
  for (const auto& command : kCommands) {
    if (first == command.name) return command.run({arguments.begin() + 1, arguments.end()});
  }
  return unknown(first);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool named = std::any_of(std::begin(kCommands), std::end(kCommands), [&](const auto& command) {
    return !arguments.empty() && arguments[0] == command.name;
  });
  return tutti::cli::with_checked_output(named ? "tutti " + arguments[0] : "tutti", [&] { return act(arguments); });
}
