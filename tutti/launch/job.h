#pragma once
// One `tutti run`: what the command line said, and the way from there to running agents.
#include <optional>
#include <string>
#include <vector>

#include "tutti/launch/affinity/shares.h"
#include "tutti/launch/attempts/restart_policy.h"
#include "tutti/launch/membership/options.h"
#include "tutti/launch/monitor/options.h"
#include "tutti/launch/output/output.h"

namespace tutti {

struct JobOptions {
  std::string ranks = "1";             // -n: "4", "8,2", "auto", "cpu", "gpu"
  std::string program;                 // as the user named it
  std::vector<std::string> arguments;  // without the program's name
  std::string role = "default";        // ROLE_NAME of the workers
  std::optional<int> input_rank = 0;   // which rank reads this command's standard input; the others read /dev/null
  ShareOptions shares;
  ReadTopology topology;  // none: /sys

  std::optional<int> nodes;  // at most
  int node = 0;              // -1: as it comes (not RendezvousBackend::kStatic)
  RendezvousOptions rendezvous;
  std::string master_address;  // empty: 127.0.0.1 on one node, required on several
  std::string iface;           // the network of the job, "eth1" or "10.0.0.0/8"; empty: the way to node 0 decides
  std::optional<int> master_port;
  std::optional<int> store_port;  // several nodes; none: the port after master_port
  std::string job;                // empty: made up on one node; after the port on several
  std::string secret_file;
  bool insecure = false;
  Duration connect_timeout = std::chrono::minutes(5);
  Duration node_timeout = std::chrono::milliseconds(2500);  // a node without a sign of life for this long is lost

  RestartPolicy restarts;

  bool tune = true;
  bool keep_memory = false;
  bool announce = true;
  Duration grace = std::chrono::seconds(5);
  Duration signal_grace = std::chrono::seconds(30);
  std::optional<Duration> time_limit;
  OutputOptions output;
  MonitorOptions watch;
  std::string report_file;  // of a failure, as JSON; empty: only the one in log_dir
};

// Runs the job's part on this node. The exit code of the job, or the error that kept it from starting; what goes wrong
// once the agent runs (a port in use, nodes that do not meet) has been told on standard error and is an exit code. Call
// from the main thread of a process without other threads. Blocks until nothing of the job is left here.
Result<int> run_job(const JobOptions& options);

// What `tutti run` exits with when an error kept the job from running.
int exit_code_of(Code code);

}  // namespace tutti
