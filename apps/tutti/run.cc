// tutti run: from the command line to a job.
#include "apps/tutti/command.h"
#include "apps/tutti/run_in_scheduler.h"
#include "apps/tutti/run_options.h"
#include "tutti/base/env.h"
#include "tutti/base/file.h"
#include "tutti/comm/group/flight.h"
#include "tutti/launch/agent.h"
#include "tutti/launch/job.h"
#ifdef TUTTI_HWLOC
#include "tutti/launch/places/hwloc_topology.h"
#endif

namespace tutti::cli {
namespace {

constexpr std::uint64_t kMostOfANodeFile = 16 << 20;

}  // namespace

int run_command(std::vector<std::string> arguments) {
  CLI::App app("Starts a program as several ranks and ends the job as one.", "tutti run");
  RunTexts texts;
  JobOptions job;
  job.watch.describe = describe_flight_call;
  declare(app, texts, job);
  if (const auto code = parse(app, arguments)) return *code;
  const auto allocation = allocation_of(current_environment(), host_names(),
                                        [](const std::string& path) { return read_file(path, kMostOfANodeFile); });
  Status understood = allocation.status();
  if (texts.nodes.standalone) {
    understood = {};
  } else if (allocation.ok() && *allocation) {
    understood = fill_from(**allocation, texts, job);
  }
  if (understood) understood = interpret(texts, app.remaining(), job);
  if (understood && allocation.ok() && *allocation && (*allocation)->others == Allocation::Others::kSrun &&
      starts_others(**allocation, texts))
    understood = become_srun(**allocation, arguments);
  if (!understood) {
    tell("tutti run", understood.error());
    return kExitUsage;
  }
#ifdef TUTTI_HWLOC
  job.topology = topology_from_hwloc;
#endif
  const Result<int> code = run_job(job);
  if (code.ok()) return *code;
  tell("tutti run", code.error());
  return exit_code_of(code.error().code);
}

}  // namespace tutti::cli
