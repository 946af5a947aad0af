#pragma once
// The whole of `tutti doctor`: this host, and where there are several each pair of them.
#include <functional>
#include <string>
#include <vector>

#include "tutti/doctor/finding.h"
#include "tutti/doctor/host_checks.h"
#include "tutti/doctor/pair_probe.h"
#include "tutti/transport/handshake.h"

namespace tutti {

struct DoctorOptions {
  JobWishes job;  // what is to run; job.world and job.addresses are found out
  int node = 0;
  std::string master_address;  // where the nodes meet; empty: one node
  std::string iface;           // the network of the job, "eth1" or "10.0.0.0/8"; empty: the way to node 0 decides
  bool fixed_ports = false;    // one node: it is to have these ports and no others
  Credentials credentials;
  Duration patience = std::chrono::seconds(60);  // for the other nodes to come
  std::string log_folder;                        // may be empty
  std::vector<std::string> names;                // of the hosts as they were listed, by node; empty: started by hand
  std::function<void(const std::string&)> say;   // lines while waiting
};

struct HostReport {
  int node = 0;
  std::string host;
  int ranks = 1;
  std::vector<Finding> findings;
};
struct DoctorReport {
  std::vector<HostReport> hosts;      // those that came, by node
  std::vector<PairMeasure> measures;  // in node numbers
  std::vector<Finding> between;       // about the meeting and the pairs
  bool whole = true;                  // not the part that a node knows which did not meet the others

  std::vector<Finding> all() const;
};

// Blocks until all is tried; every node of several has to run it. What does not work is a finding: an error is returned
// only where the question makes no sense (an address that is not this host's). Main thread of a process with one
// thread.
Result<DoctorReport> examine(const DoctorOptions& options);

}  // namespace tutti
