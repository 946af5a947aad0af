// tutti env: what a report of a bug needs to say.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/options/help_text.h"
#include "apps/tutti/command.h"
#include "tutti/doctor/report.h"

namespace tutti::cli {
namespace in_env {
namespace {

constexpr const char* kSynopsis = "tutti env [OPTIONS]";
constexpr const char* kFooter = R"(
Paste the output into a bug report. It contains addresses, paths and host names, but no secrets.

Exit codes:
  0  printed
  2  wrong usage)";

}  // namespace
}  // namespace in_env

int env_command(std::vector<std::string> arguments) {
  using namespace in_env;
  CLI::App app("Prints version and system information for bug reports.", "tutti env");
  bool json = false;
  set_help(app, kFooter, kSynopsis);
  app.add_flag("--json", json, "print a list of JSON objects with name and value");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  const doctor::NamedFacts facts = doctor::environment_report(doctor::inspect_host({}), current_environment());
  if (json) {
    auto list = nlohmann::json::array();
    for (const auto& [name, value] : facts) list.push_back({{"name", name}, {"value", value}});
    std::puts(list.dump(1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return 0;
  }
  std::size_t width = 0;
  for (const auto& [name, value] : facts) width = std::max(width, std::min<std::size_t>(name.size(), 28));
  for (const auto& [name, value] : facts) std::printf("%-*s  %s\n", int(width), name.c_str(), value.c_str());
  return 0;
}

}  // namespace tutti::cli
