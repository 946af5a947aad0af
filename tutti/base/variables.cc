// A name that is near to none of ours is left in peace: modules of a site set TUTTI_ROOT and its like, and programs may
// have variables of their own.
#include "tutti/base/variables.h"

#include <algorithm>

#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr std::string_view kPrefix = "TUTTI_";

}  // namespace

std::span<const std::string> known_variables() {
  static const std::string kNames[] = {"ALGORITHM",
                                       "BENCH_CONGESTION",
                                       "CUDA_PATH",
                                       "DEVICE",
                                       "ENGINE",
                                       "ENGINE_PATH",
                                       "ETCD_PASSWORD",
                                       "FLIGHT_DIR",
                                       "FLIGHT_SIZE",
                                       "GENERATION",
                                       "HANG_WARNING",
                                       "HEAP_LIMIT",
                                       "HOST_ID",
                                       "IFACE",
                                       "INIT",
                                       "INSECURE",
                                       "JOB",
                                       "JOIN_TIMEOUT",
                                       "KEPT_MEMORY_FD",
                                       "LEAVE_TIMEOUT",
                                       "LOG",
                                       "MIXED_BUILDS",
                                       "NETWORK",
                                       "NODE_MET_FD",
                                       "PEER_TIMEOUT",
                                       "PROGRESS_FD",
                                       "SECRET",
                                       "SECRET_FD",
                                       "SECRET_FILE",
                                       "STORE",
                                       "STREAMS",
                                       "TIMEOUT",
                                       "TRANSPORT"};
  return kNames;
}

std::vector<std::string> misspelt_variables(const Environment& environment) {
  const auto known = known_variables();
  std::vector<std::string> sentences;
  for (const auto& [name, value] : environment) {
    if (!name.starts_with(kPrefix)) continue;
    const std::string own = name.substr(kPrefix.size());
    if (std::find(known.begin(), known.end(), own) != known.end()) continue;
    if (const auto near = nearest(own, known))
      sentences.push_back(name + " is no variable of tutti and means nothing (did you mean " + std::string(kPrefix) +
                          *near + "?)");
  }
  return sentences;
}

}  // namespace tutti
