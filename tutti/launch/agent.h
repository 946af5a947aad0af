#pragma once
// The agent of one node: starts its workers, carries their output, notices how each ends, and sees to it that the job
// ends as one.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/launch/affinity/shares.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/monitor/options.h"
#include "tutti/launch/output/output.h"
#include "tutti/transport/handshake.h"

namespace tutti {

class Rendezvous;
struct Round;

struct AgentSpec {
  std::string program;                 // a path for execve()
  std::vector<std::string> arguments;  // with argv[0]
  std::vector<Share> shares;           // by local rank
  int cores_of_a_rank = 1;             // what a rank has for its threads
  bool pass_local_rank = false;        // --local-rank=N behind the arguments
  int input_rank = 0;                  // reads this process's standard input; -1: none does
  std::string role = "default";        // ROLE_NAME
  std::string host;                    // its name, for words
  std::string job;
  int max_restarts = 0;                      // for the program to know; NodesOptions::judge decides what restarts
  Credentials credentials;                   // to the job's store
  int secret_fd = -1;                        // -1: none
  int kept_memory_fd = -1;                   // base/memory.h; -1: none could be had
  std::string flight_folder;                 // of flight records; empty: in log_dir, one of each attempt
  std::string error_files;                   // without log_dir: error_files_prefix(); the keeper removes them
  bool tune = true;                          // set recommended_settings() where the user has not
  bool keep_memory = false;                  // and settings_that_keep_memory()
  bool announce = true;                      // the one line at the start
  Duration grace = std::chrono::seconds(5);  // from SIGTERM to SIGKILL after a failure
  Duration signal_grace = std::chrono::seconds(30);  // and after a signal that the user sent
  std::optional<Duration> time_limit;
  Clock::time_point began = now();  // the job, as far as this node knows
  OutputOptions output;
  MonitorOptions watch;
  std::string report_file;                // the report as JSON, besides the one in log_dir; empty: none
  std::function<void(const Round&)> met;  // called after the first meeting, before anything is started
  std::function<std::vector<std::string>(const Round&)> table;  // of ranks, for the announcement
};

// Meets the other nodes, runs the workers of this one, again as often as the nodes agree to, and returns the exit code
// of the job; or the error that kept the nodes from meeting. Blocks. Call from the main thread of the child of
// run_with_keeper(), whose descriptor is `keeper_gone`. When it returns no worker is alive and nothing that a worker
// started.
Result<int> run_agent(const AgentSpec& spec, Rendezvous& nodes, const Fd& keeper_gone);

}  // namespace tutti
