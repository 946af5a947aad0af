#pragma once
// A world whose ranks are threads of this process: for tests and experiments.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/comm/plans/network.h"

namespace tutti {

// A simulated network between hosts (transport/sim).
struct ModelledNetwork {
  int hosts = 0;           // ranks are assigned to them in turn; 0: each rank is a host of its own
  LinkCost between;        // of each pair of ranks of different hosts; overhead: of each piece
  double jitter = 0;       // a piece's latency grows by up to this share
  std::uint64_t seed = 1;  // of the jitter
};

struct InprocOptions {
  std::string algorithm;                        // as TUTTI_ALGORITHM
  std::optional<ModelledNetwork> network = {};  // none: all ranks share memory, as on one host
  Duration collective_timeout = std::chrono::minutes(1);
  Duration leave_timeout = std::chrono::seconds(10);  // as TUTTI_LEAVE_TIMEOUT
  Duration hang_warning = std::chrono::seconds(30);   // as TUTTI_HANG_WARNING
  std::string flight_folder;                          // for flight records; empty: none are written
  std::size_t heap_limit = std::size_t(1) << 30;      // bytes of address space for each rank's heap
};

// One Group for each rank; give each to a thread of its own. Errors throw.
std::vector<Group> make_inproc_world(int size, const InprocOptions& options = {});

}  // namespace tutti
