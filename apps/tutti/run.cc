// tutti run: from the command line to a job.
#include "apps/tutti/command.h"
#include "apps/tutti/run_options.h"
#include "tutti/launch/agent.h"
#include "tutti/launch/job.h"
#ifdef TUTTI_HWLOC
#include "tutti/launch/places/hwloc_topology.h"
#endif

namespace tutti::cli {

int run_command(std::vector<std::string> arguments) {
  CLI::App app("Starts a program as several ranks and ends the job as one.", "tutti run");
  RunTexts texts;
  JobOptions job;
  declare(app, texts, job);
  if (const auto code = parse(app, std::move(arguments))) return *code;
  const Status understood = interpret(texts, app.remaining(), job);
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
