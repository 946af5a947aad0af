#pragma once
// `tutti run --hosts`. The ssh launcher, on the user's host, starts `tutti node` on each host through ssh, shows their
// output, passes signals on, and ends as the job does. The ssh node, on each host, runs the launcher proper as a child.
// Nothing of the job runs in the ssh launcher. What the two send each other is in protocol.h.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/base/error.h"
#include "tutti/base/fd.h"
#include "tutti/launch/ssh/hosts.h"
#include "tutti/launch/ssh/protocol.h"

namespace tutti::launch {

// A host that cannot take part.
struct UnreachedHost {
  std::string host;
  Error why;
};

struct SshOptions {
  std::string log_dir;  // of the launchers on the hosts; empty: what nobody reads here is lost
  bool json = false;    // the hosts print JSON lines; this launcher turns other lines (of ssh, or early ones) into JSON
  HostList hosts;
  std::vector<std::string> shell;                // "ssh" and its options; empty: ssh with Tutti's options
  std::string self;                              // the path of tutti, tried on each host before PATH
  std::string command = "run";                   // the command of tutti that each host runs
  std::vector<std::string> options;              // its options, the same on all hosts
  std::vector<std::string> program;              // and its arguments; empty: the command takes none
  std::string folder;                            // the working directory on each host
  std::string master_address;                    // empty: master_address_of() decides
  std::string iface;                             // the network of the job; empty: the one of ssh
  std::map<std::string, std::string> variables;  // for the launcher on each host, the secret among them
  Duration patience = std::chrono::minutes(5);   // for all hosts to answer

  // Null: the job begins with all hosts or not at all, and ends when one is lost. Otherwise the hosts that answer
  // continue without the others: called once, with both in their order, it returns more options for those that
  // answered. If none answered, the first reason is the error.
  std::function<std::vector<std::string>(const std::vector<std::string>& reached, const std::vector<UnreachedHost>&)>
      go_without;
};

// The command for one host: ssh with a command for the shell there. For this host itself, that shell alone.
std::vector<std::string> session_command(const SshOptions& options, const std::string& host);

// The ssh launcher. Returns the exit code of the job, or 128 + s after a signal s before the job began. kUnreachable: a
// host did not answer, with the output of ssh; kMismatch: another version of tutti there; kUsage: ssh, or the command
// in its place, cannot be started. Call from the main thread, which should be the only one.
Result<int> run_over_ssh(const SshOptions& options);

// The ssh node, the command `tutti node`. Sends a greeting on standard output, reads its instructions from standard
// input, runs them as a child, passes signals on to it, and sends it SIGTERM when the ssh launcher goes away. Writes
// last how the child ended, and returns its exit code as a shell has it. Call from the main thread of a process without
// other threads. kUsage: started by a person, or the folder or program does not exist; the caller then prints the error
// and calls write_node_exit().
Result<int> run_ssh_node();

// Writes the last line on standard output.
void write_node_exit(const NodeExit& exit);

// In the child of an ssh node: the descriptor on which it reports that it has joined the other nodes. Empty in any
// other process; then report_joined() does nothing.
Fd take_joined_descriptor();
void report_joined(const Fd& ssh_node);

}  // namespace tutti::launch
