// tutti node: what `tutti run --hosts` starts on each host. Not for people.
#include "apps/tutti/command.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/job.h"
#include "tutti/launch/ssh/far_end.h"

namespace tutti::cli {

int node_command(std::vector<std::string> arguments) {
  if (!arguments.empty()) {
    tell("tutti node", usage("it takes no arguments", "tutti run --hosts a:8,b:2 starts it on each host"));
    return kExitUsage;
  }
  const Result<int> code = run_far_end();
  if (code.ok()) return *code;
  tell("tutti node", code.error());
  const Parting parting{.code = exit_code_of(code.error().code)};
  part(parting);
  return parting.code;
}

}  // namespace tutti::cli
