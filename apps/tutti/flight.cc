// tutti flight: reads the records and prints the report.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/tutti/command.h"
#include "tutti/base/tame.h"
#include "tutti/launch/job.h"
#include "tutti/trace/flight_report.h"

namespace tutti::cli {
namespace {

constexpr const char* kFooter = R"(
Every rank keeps its last 2,000 operations. When a job fails, or a rank gets SIGUSR2 (tutti run passes it on to all), they are
written to flight-rank0.json, flight-rank1.json, ... in TUTTI_FLIGHT_DIR; without one, `tutti run` takes its --log-dir or a
temporary folder, and says which. Ranks of several hosts: give the folders of all, or copy the files into one.

Examples:
  tutti flight logs/20261120-210405-3fa9c1/attempt_0/flight
  a job hangs:  kill -USR2 PID-OF-TUTTI-RUN, then tutti flight the folder that the ranks name

Exit codes: 0 the records were read, whatever they say; 1 so they were, but a file was damaged or could not be read;
  2 wrong usage, no such folder, or no record in it.)";

Result<int> act(const std::vector<std::string>& folders, bool json) {
  if (folders.empty()) return usage("which folder?", "tutti flight DIR, where the job's flight-rank0.json, ... are");
  const FlightFiles files = TUTTI_TRY(read_flight_folders(folders));
  for (const std::string& problem : files.problems)
    std::fprintf(stderr, "tutti flight: %s\n", tame_line(problem).c_str());
  if (files.dumps.empty()) return Error{.code = Code::kCorrupt, .detail = "none of the flight records could be read"};
  const FlightReport report = make_flight_report(files.dumps);
  std::fputs((json ? to_json(report) : tame(to_text(report))).c_str(), stdout);  // words of the ranks
  return files.damaged ? 1 : 0;
}

}  // namespace

int flight_command(std::vector<std::string> arguments) {
  CLI::App app("Says who was missing where, from the flight records of a job's ranks.", "tutti flight");
  std::vector<std::string> folders;
  bool json = false;
  app.set_help_flag("-h,--help", "this text");
  app.footer(kFooter);
  app.add_option("DIR", folders, "folders with the records of one job")->type_name("");
  app.add_flag("--json", json, "the whole report as JSON, all groups included");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  const Result<int> code = act(folders, json);
  if (code.ok()) return *code;
  tell("tutti flight", code.error());
  return exit_code_of(code.error().code);
}

}  // namespace tutti::cli
