#pragma once
// The whole of `tutti doctor`: this host, and with several hosts each pair of them.
#include <functional>
#include <string>
#include <vector>

#include "tutti/doctor/checks.h"
#include "tutti/doctor/gpus.h"
#include "tutti/doctor/pair_probe.h"
#include "tutti/doctor/report.h"
#include "tutti/transport/handshake.h"

namespace tutti::doctor {

struct Options {
  PlannedJob job;  // examine() fills in job.world and job.addresses
  int node = 0;
  std::string master_address;  // of node 0; empty: one node
  std::string iface;           // the network of the job, "eth1" or "10.0.0.0/8"; empty: the route to node 0 decides
  bool fixed_ports = false;    // one node: the job needs these ports and no others
  transport::Credentials credentials;
  Duration patience = std::chrono::seconds(60);  // for the other nodes to come
  std::string log_folder;                        // may be empty
  std::vector<std::string> names;                // of the hosts as listed by the user, by node; empty: started by hand
  std::function<void(const std::string&)> say;   // prints a line while waiting
};

struct HostReport {
  int node = 0;
  std::string host;
  int ranks = 1;
  std::vector<Finding> findings;
  std::vector<GpuInfo> gpus;
};
struct Report {
  std::vector<HostReport> hosts;      // those that came, by node
  std::vector<PairMeasure> measures;  // in node numbers
  std::vector<Finding> between;       // about the rendezvous and the pairs
  bool whole = true;                  // false: this node did not reach the others and knows only its part

  std::vector<Finding> all() const;
};

// Blocks until everything is tried; every node of several has to run it. Anything that does not work is a finding. An
// error is returned only if the question is wrong (an address that is not this host's). Main thread of a process with
// one thread.
Result<Report> examine(const Options& options);

// What a node tells the others, as JSON in the store.
struct Message {
  std::string host;     // its name
  std::string version;  // of tutti
  int ranks = 1;
  ProbeTarget target;             // where the others can probe the path to it
  std::vector<Finding> findings;  // about the host itself
  std::vector<GpuInfo> gpus;
};
std::string encode(const Message& message);
// kCorrupt: from another version of tutti, or damaged.
Result<Message> parse_doctor_message(const std::string& text);

}  // namespace tutti::doctor
