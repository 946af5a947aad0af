#pragma once
// The agent of one node: starts its workers, carries their output, notices how each ends, and sees to it that the job
// ends as one.
#include <optional>
#include <string>
#include <vector>

#include "tutti/launch/exit_codes.h"
#include "tutti/launch/layout.h"
#include "tutti/launch/output.h"
#include "tutti/launch/places/shares.h"

namespace tutti {

class Nodes;

struct AgentSpec {
  std::string program;                 // a path for execve()
  std::vector<std::string> arguments;  // with argv[0]
  Layout layout;
  std::vector<Share> shares;       // by local rank
  std::vector<std::string> table;  // of ranks, for the announcement
  int cores_of_a_rank = 1;         // what a rank has for its threads
  bool pass_local_rank = false;    // --local-rank=N behind the arguments
  std::string role = "default";    // ROLE_NAME
  std::string host;                // its name, for words
  std::string job;
  std::string master_address;  // for the program: MASTER_ADDR, MASTER_PORT
  int master_port = 0;
  std::string store;                                 // TUTTI_STORE
  int secret_fd = -1;                                // -1: none
  std::string flight_folder;                         // where ranks write their flight records
  std::string scratch;                               // folder for error files without log_dir; the keeper removes it
  bool tune = true;                                  // set recommended_settings() where the user has not
  bool announce = true;                              // the one line at the start
  Duration grace = std::chrono::seconds(5);          // from SIGTERM to SIGKILL after a failure
  Duration signal_grace = std::chrono::seconds(30);  // and after a signal that the user sent
  std::optional<Duration> time_limit;
  OutputOptions output;
};

// Runs the workers of this node to their end and returns the exit code of the job. Blocks. Call from the main thread of
// the child of run_with_keeper(), whose descriptor is `keeper_gone`. `nodes` (may be null: no store) tells and learns
// of failures elsewhere. When it returns no worker is alive and nothing that a worker started.
int run_agent(const AgentSpec& spec, Nodes* nodes, const Fd& keeper_gone);

}  // namespace tutti
