// tutti flight: reads the records and prints the report.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/options/help_text.h"
#include "apps/tutti/command.h"
#include "tutti/base/text.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/trace/flight/report.h"

namespace tutti::cli {
namespace in_flight {
namespace {

constexpr const char* kSynopsis = "tutti flight DIR... [OPTIONS]";
constexpr const char* kFooter = R"(
Every rank records its last 2,000 operations. When a job fails, or a rank gets SIGUSR2 (tutti run passes it on to all
ranks), the ranks write their records to flight-rank0.json, flight-rank1.json, ... in TUTTI_FLIGHT_DIR. Without this
variable, tutti run uses its --log-dir or a temporary folder, and prints which. For a job on several hosts give the
folders of all hosts, or copy the files into one.

Examples:
  tutti flight logs/20261120-210405-3fa9c1/attempt_0/flight
  kill -USR2 PID    when a job hangs, with the PID of tutti run; then read the folder that the ranks print

Exit codes:
  0  the records were read, whatever they say
  1  the records were read, but one was damaged or unreadable
  2  wrong usage, a missing folder, or a folder without records)";

Result<int> act(const std::vector<std::string>& folders, bool json) {
  if (folders.empty()) return not_given("folder", kSynopsis, "tutti flight logs/JOB/attempt_0/flight");
  const trace::FlightFiles files = TUTTI_TRY(trace::read_flight_folders(folders));
  for (const std::string& problem : files.problems)
    std::fprintf(stderr, "tutti flight: %s\n", sanitize_line(problem).c_str());
  if (files.dumps.empty()) return Error{.code = Code::kCorrupt, .detail = "none of the flight records could be read"};
  const trace::FlightReport report = trace::make_flight_report(files.dumps);
  std::fputs((json ? to_json(report) : sanitize(to_text(report))).c_str(), stdout);  // words of the ranks
  return files.damaged ? 1 : 0;
}

}  // namespace
}  // namespace in_flight

int flight_command(std::vector<std::string> arguments) {
  using namespace in_flight;
  CLI::App app("Explains a hang from the flight-recorder files of a job's ranks.", "tutti flight");
  std::vector<std::string> folders;
  bool json = false;
  set_help(app, kFooter, kSynopsis);
  app.add_option("DIR", folders, "folders with the records of one job")->type_name("");
  app.add_flag("--json", json, "print the whole report as JSON, with all groups");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  const Result<int> code = act(folders, json);
  if (code.ok()) return *code;
  report("tutti flight", code.error());
  return launch::exit_code_of(code.error().code);
}

}  // namespace tutti::cli
