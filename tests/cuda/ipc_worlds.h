#pragma once
// Worlds whose ranks open one another's memory, on the double of CUDA.
#include <dlfcn.h>

#include <map>
#include <string>

#include "tests/cuda/worlds.h"
#include "tutti/comm/cuda/runtime.h"

namespace tutti::test {

// How often this rank has opened memory of peers that is not closed yet.
inline int open_handles() {
  const auto count = reinterpret_cast<int (*)()>(::dlsym(cuda::runtime_library().or_throw(), "fake_cuda_open_handles"));
  TUTTI_REQUIRE(count, "the double of CUDA does not count handles");
  return count();
}

inline std::string outcome_of(int size, const RankBody& body, const WorldOptions& options = with_gpus(kIpc)) {
  return describe(run_processes(size, body, options));
}

// As with_gpus(kIpc); one rank has this variable.
inline WorldOptions with_variable(int rank, const std::string& name, const std::string& value) {
  WorldOptions options = with_gpus(kIpc);
  options.environment_of = [=](int r) {
    return r == rank ? std::map<std::string, std::string>{{name, value}} : std::map<std::string, std::string>{};
  };
  return options;
}

}  // namespace tutti::test
