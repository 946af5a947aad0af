#pragma once
// A world whose ranks are threads of this process: for tests, and for trying things out.
#include <string>
#include <vector>

#include "tutti/comm/group.h"

namespace tutti {

struct InprocOptions {
  std::string algorithm;  // as TUTTI_ALGORITHM
  Duration collective_timeout = std::chrono::minutes(1);
  Duration leave_timeout = std::chrono::seconds(10);  // as TUTTI_LEAVE_TIMEOUT
  std::string flight_folder;                          // where flight records go; empty: none are made
  std::size_t heap_limit = std::size_t(1) << 30;      // bytes of address space for each rank's heap
};

// One Group for each rank; hand each to a thread of its own. Errors throw.
std::vector<Group> make_inproc_world(int size, const InprocOptions& options = {});

}  // namespace tutti
