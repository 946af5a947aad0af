#pragma once
// A subcommand of `tutti` is one file: it defines a function of this shape, main.cc lists it in its table.
#include <span>
#include <string>
#include <vector>

#include "apps/options/command_line.h"

namespace tutti::cli {

struct Command {
  const char* name;
  const char* summary;                             // null: started by other commands, and not in the help
  int (*run)(std::vector<std::string> arguments);  // without "tutti" and the command's name; returns the exit code
};

// A command that is a family of others, as `tutti data`: runs the one that arguments[0] names, or prints the help.
struct CommandFamily {
  const char* name;      // "tutti data"
  const char* summary;   // of its help's first line
  const char* examples;  // the end of its help
  std::span<const Command> commands;
};
// The help of the commands that have a summary.
void print_help(const CommandFamily& family);
int run_family(const CommandFamily& family, std::vector<std::string> arguments);

int run_command(std::vector<std::string> arguments);
int bench_command(std::vector<std::string> arguments);
int plan_command(std::vector<std::string> arguments);
int plan_pipeline_command(std::vector<std::string> arguments);
int plan_grid_command(std::vector<std::string> arguments);
int plan_measure_command(std::vector<std::string> arguments);
int plan_train_command(std::vector<std::string> arguments);
int data_command(std::vector<std::string> arguments);
int ckpt_command(std::vector<std::string> arguments);
int node_command(std::vector<std::string> arguments);
int status_command(std::vector<std::string> arguments);
int top_command(std::vector<std::string> arguments);
int flight_command(std::vector<std::string> arguments);
int trace_command(std::vector<std::string> arguments);
int doctor_command(std::vector<std::string> arguments);
int env_command(std::vector<std::string> arguments);
int explain_command(std::vector<std::string> arguments);

}  // namespace tutti::cli
