#pragma once
// `tutti run --hosts`: starts the launcher on each host through ssh, shows what they say, passes signals on, and ends
// as the job does. Nothing of the job runs in this process.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/base/error.h"
#include "tutti/launch/ssh/hosts.h"

namespace tutti {

// A host that cannot take part.
struct Unreached {
  std::string host;
  Error why;
};

struct SshOptions {
  std::string log_dir;  // that the launchers over there were given; empty: what nobody reads here is lost
  bool json = false;  // they say JSON lines; so does this end, also of what is none (of ssh, or said before they meet)
  HostList hosts;
  std::vector<std::string> shell;                // "ssh" and its options; empty: ssh with ours
  std::string self;                              // the path of tutti, tried on each host before PATH is
  std::string command = "run";                   // of tutti, that each host is to carry out
  std::vector<std::string> options;              // its options, the same on all hosts
  std::vector<std::string> program;              // and its arguments; empty: the command takes none
  std::string folder;                            // where the job starts on each host
  std::string master_address;                    // empty: where ssh reaches the first host
  std::map<std::string, std::string> variables;  // for the launcher on each host, the secret among them
  Duration patience = std::chrono::minutes(5);   // for all hosts to answer

  // Null: the job begins with all hosts or not at all, and ends when one is lost. Else those that answer go on without
  // the others; called once, with both in their order, it returns further options for them. With nobody left the first
  // of the reasons is the error.
  std::function<std::vector<std::string>(const std::vector<std::string>& reached, const std::vector<Unreached>&)>
      go_without;
};

// What is started for a host: ssh with the command for a shell there. For this host itself, that shell alone.
std::vector<std::string> session_command(const SshOptions& options, const std::string& host);
// Whether a host of the list is this one.
bool is_this_host(const std::string& host);

// The exit code of the job, 128 + s after a signal s before it began. kUnreachable: a host did not answer, with what
// ssh said; kMismatch: another version of tutti there; kUsage: what reaches the hosts cannot be started. Call from the
// main thread, which should be the only one.
Result<int> run_over_ssh(const SshOptions& options);

}  // namespace tutti
