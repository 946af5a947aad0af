#pragma once
// What a job would meet on one host. The first function is pure, so that a test can be any host; the second tries
// things out.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/env.h"
#include "tutti/doctor/finding.h"
#include "tutti/doctor/host_facts.h"

namespace tutti {

// The job that is to run.
struct JobWishes {
  int ranks = 1;                       // on this host
  int world = 1;                       // on all
  int nodes = 1;                       // hosts
  std::optional<std::uint64_t> heap;   // bytes of shared memory for each rank
  std::optional<int> devices;          // GPUs that should be here
  std::string core_type;               // OPENBLAS_CORETYPE of the user; empty: none
  Environment threads;                 // OMP_NUM_THREADS, OPENBLAS_NUM_THREADS and OMP_WAIT_POLICY of the user
  std::vector<Error> bad_variables;    // of the user, whose values make no sense
  std::vector<std::string> addresses;  // where node 0 would serve; only on node 0
  int master_port = 29500, store_port = 29501;
};

std::vector<Finding> check_host(const HostFacts& facts, const JobWishes& wishes);
// Binds the ports, and takes memory as the heap does: a memfd with its pages.
std::vector<Finding> try_host(const JobWishes& wishes);

}  // namespace tutti
