#pragma once
// Whether a job will run well: on one host, with its GPUs, and between each pair of hosts. Pure functions, so a test
// can try any host; only try_host() does something on this one.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/env.h"
#include "tutti/doctor/host_info.h"
#include "tutti/doctor/pair_probe.h"
#include "tutti/doctor/report.h"

namespace tutti::doctor {

// The job that is to run.
struct PlannedJob {
  int ranks = 1;                       // on this host
  int world = 1;                       // on all hosts
  int nodes = 1;                       // hosts
  std::optional<std::uint64_t> heap;   // bytes of shared memory for each rank
  std::optional<int> devices;          // GPUs that should be here
  std::string core_type;               // OPENBLAS_CORETYPE of the user; empty: none
  Environment threads;                 // OMP_NUM_THREADS, OPENBLAS_NUM_THREADS and OMP_WAIT_POLICY of the user
  std::vector<Error> bad_variables;    // variables of the user with invalid values
  std::vector<std::string> addresses;  // where node 0 would serve; only on node 0
  int master_port = 29500, store_port = 29501;
};

std::vector<Finding> check_host(const HostInfo& host, const PlannedJob& job);
// Binds the ports, and allocates memory as the heap does: a memfd with its pages.
std::vector<Finding> try_host(const PlannedJob& job);

// `ranks`: of this host. `expected`: how many devices the user counts on; none: as many as are there.
std::vector<Finding> check_devices(const DeviceInfo& devices, int ranks, std::optional<int> expected);

// A schedule of pairs: every pair once, in turns in which each node has at most one partner, as in a tournament. Each
// pair has the smaller number first.
std::vector<std::vector<std::pair<int, int>>> turns_of_pairs(int nodes);
// A line or more for each pair; `hosts` are the nodes' names. A pair is slow in comparison with the others.
std::vector<Finding> check_pairs(const std::vector<PairMeasure>& measures, const std::map<int, std::string>& hosts);

}  // namespace tutti::doctor
