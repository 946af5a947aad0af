#pragma once
// The agent of one node: starts its workers, carries their output, notices how each ends, and makes the job end as one.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/launch/affinity/shares.h"
#include "tutti/launch/monitor/stalls.h"
#include "tutti/launch/output/output.h"
#include "tutti/transport/handshake.h"

namespace tutti::launch {

class Rendezvous;
struct Round;

// What the user chooses about the agent's work. JobOptions has it from the command line, AgentSpec for the agent.
struct AgentOptions {
  std::string role = "default";                      // ROLE_NAME of the workers
  bool tune = true;                                  // set recommended_settings() where the user has not
  bool keep_memory = false;                          // and settings_that_keep_memory()
  bool announce = true;                              // print the line and the table of ranks at the start
  Duration grace = std::chrono::seconds(5);          // from SIGTERM to SIGKILL after a failure
  Duration signal_grace = std::chrono::seconds(30);  // and after a signal of the user
  std::optional<Duration> time_limit;
  OutputOptions output;
  MonitorOptions monitor;
  std::string report_file;  // the report as JSON, besides the one in log_dir; empty: none
};

struct AgentSpec : AgentOptions {
  std::string program;                 // a path for execve()
  std::vector<std::string> arguments;  // with argv[0]
  std::vector<Share> shares;           // by local rank
  int cores_of_a_rank = 1;             // for the threads of one rank
  bool pass_local_rank = false;        // --local-rank=N behind the arguments
  int input_rank = 0;                  // reads this process's standard input; -1: none does
  std::string host;                    // its name, for messages
  std::string job;
  int max_restarts = 0;                      // for the program to know; NodesOptions::judge decides about restarts
  transport::Credentials credentials;        // for the job's store
  int secret_fd = -1;                        // -1: none
  int kept_memory_fd = -1;                   // base/memory.h; -1: none
  std::string flight_folder;                 // for flight records; empty: in log_dir, one folder for each attempt
  std::string error_files;                   // without log_dir: error_files_prefix(); the supervisor removes them
  Clock::time_point began = now();           // when the job began, as far as this node knows
  std::function<void(const Round&)> joined;  // called after the first rendezvous, before anything is started
  std::function<std::vector<std::string>(const Round&)> table;  // of ranks, for the announcement
};

// Joins the other nodes, runs the workers of this one, again as often as the nodes agree to, and returns the exit code
// of the job; or the error that kept the nodes from a rendezvous. Blocks. Call from the main thread of the child of
// run_supervised(), whose descriptor is `supervisor_gone`. When it returns no worker is alive and nothing that a worker
// started.
Result<int> run_agent(const AgentSpec& spec, Rendezvous& nodes, const Fd& supervisor_gone);

}  // namespace tutti::launch
