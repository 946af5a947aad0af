#pragma once
// One `tutti run`: what the command line said, and the way from there to a running agent.
#include <optional>
#include <string>
#include <vector>

#include "tutti/launch/agent/agent.h"
#include "tutti/launch/agent/restart_policy.h"
#include "tutti/launch/membership/options.h"

namespace tutti::launch {

struct JobOptions : AgentOptions {
  std::string ranks = "1";             // -n: "4", "8,2", "auto", "cpu", "gpu"
  std::string program;                 // as the user named it
  std::vector<std::string> arguments;  // without the program's name
  std::optional<int> input_rank = 0;   // the rank that reads this command's standard input; the others read /dev/null
  ShareOptions shares;
  ReadTopology topology;  // none: /sys

  std::optional<int> nodes;  // at most
  int node = 0;              // -1: any (not RendezvousBackend::kStatic)
  RendezvousOptions rendezvous;
  std::string master_address;  // empty: 127.0.0.1 on one node, required on several
  std::string iface;           // the network of the job, "eth1" or "10.0.0.0/8"; empty: the route to node 0 decides
  std::optional<int> master_port;
  std::optional<int> store_port;  // several nodes; none: the port after master_port
  std::string job;                // empty: made up on one node, derived from the port on several
  std::string secret_file;
  bool insecure = false;
  Duration connect_timeout = std::chrono::minutes(5);
  Duration node_timeout = std::chrono::milliseconds(2500);  // a node without a heartbeat for this long is lost

  RestartPolicy restarts;
};

// Runs the job's part on this node. Returns the exit code of the job, or the error that kept it from starting. What
// goes wrong once the agent runs (a port in use, missing nodes) is printed on standard error and becomes an exit code.
// Call from the main thread of a process without other threads. Blocks until nothing of the job is left here.
Result<int> run_job(const JobOptions& options);

}  // namespace tutti::launch
