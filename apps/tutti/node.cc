// tutti node: what `tutti run --hosts` starts on each host. Not for people.
#include "apps/tutti/command.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/ssh/ssh.h"

namespace tutti::cli {

int node_command(std::vector<std::string> arguments) {
  if (!arguments.empty()) {
    report("tutti node", usage("it takes no arguments", "tutti run --hosts a:8,b:2 starts it on each host"));
    return launch::kExitUsage;
  }
  const Result<int> code = launch::run_ssh_node();
  if (code.ok()) return *code;
  report("tutti node", code.error());
  const launch::NodeExit exit{.code = launch::exit_code_of(code.error().code)};
  launch::write_node_exit(exit);
  return exit.code;
}

}  // namespace tutti::cli
