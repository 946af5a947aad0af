// tutti run: from the command line to a job.
#include "apps/tutti/command.h"
#include "apps/tutti/other_launchers.h"
#include "apps/tutti/run_in_scheduler.h"
#include "apps/tutti/run_on_hosts.h"
#include "apps/tutti/run_options.h"
#include "tutti/base/env.h"
#include "tutti/base/file.h"
#include "tutti/base/log.h"
#include "tutti/base/machine.h"
#include "tutti/comm/group/flight.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/job.h"
#include "tutti/launch/tuning.h"
#include "tutti/runtime/init.h"
#ifdef TUTTI_HWLOC
#include "tutti/launch/affinity/binding.h"
#endif

namespace tutti::cli {
namespace in_run {
namespace {

constexpr std::uint64_t kMostOfANodeFile = 16 << 20;

int report(const Error& error, const launch::OutputOptions& output = {}) {
  const Error sourced = with_source(error);
  if (output.json) {
    const std::string text = "tutti run: " + to_string(sourced);
    const launch::LogLine line{.line = text, .level = launch::LineLevel::kError};
    std::fprintf(stderr, "%s\n", json_line(line, host_name(), 0, launch::microseconds_since_epoch()).c_str());
  } else {
    cli::report("tutti run", sourced);
  }
  return launch::exit_code_of(error.code);
}

// Inside a scheduler's job most need not be typed. A name is resolved only where it is needed: that can take seconds.
Result<std::optional<rendezvous::Allocation>> find_allocation(const RunTexts& texts) {
  const bool named = !texts.ssh.hosts.empty() || !texts.ssh.hostfile.empty();
  if (texts.nodes.standalone || named) return std::optional<rendezvous::Allocation>();
  const rendezvous::HostNames names = env("JOB_COMPLETION_INDEX")
                                          ? rendezvous::host_names()
                                          : rendezvous::HostNames{.host = host_name(), .canonical = {}};
  return rendezvous::allocation_of(current_environment(), names,
                                   [](const std::string& path) { return read_file(path, kMostOfANodeFile); });
}

// Fills in `job`, and runs it from here if this process only starts others that run it; then the code of the job.
Result<std::optional<int>> start_elsewhere(const std::vector<std::string>& arguments,
                                           const std::vector<std::string>& rest, RunTexts& texts,
                                           launch::JobOptions& job) {
  const std::optional<rendezvous::Allocation> allocation = TUTTI_TRY(find_allocation(texts));
  const std::optional<launch::HostList> hosts = TUTTI_TRY(hosts_of(texts, allocation));
  if (allocation && !hosts) TUTTI_TRY(fill_from(*allocation, texts, job));
  TUTTI_TRY(interpret(texts, rest, job));
  if (hosts) return std::optional(TUTTI_TRY(run_on_hosts(*hosts, texts, job, arguments, rest)));
  if (allocation && starts_others(*allocation, texts)) return become_srun(*allocation, arguments);
  return std::optional<int>();
}

}  // namespace
}  // namespace in_run

int run_command(std::vector<std::string> arguments) {
  using namespace in_run;
  CLI::App app("Starts a program as several ranks and ends the job as one.", "tutti run");
  RunTexts texts;
  launch::JobOptions job;
  job.monitor.describe = comm::describe_flight_call;
  declare(app, texts, job);
  if (const Status flags = check_flag_variables(); !flags) return report(flags.error());
  if (const auto error = option_of_another_launcher(app, arguments)) return report(*error);
  if (const auto code = parse(app, arguments)) return *code;
  // Reported here once, which otherwise each rank reports.
  for (const Status& variables : {log::check_setting(), check_variables(), launch::check_thread_count(env)})
    if (!variables) return report(variables.error());
  const Result<std::optional<int>> elsewhere = start_elsewhere(arguments, app.remaining(), texts, job);
  if (!elsewhere.ok()) return report(elsewhere.error(), job.output);
  if (*elsewhere) return **elsewhere;
#ifdef TUTTI_HWLOC
  job.topology = launch::topology_from_hwloc;
#endif
  const Result<int> code = launch::run_job(job);
  return code.ok() ? *code : report(code.error(), job.output);
}

}  // namespace tutti::cli
