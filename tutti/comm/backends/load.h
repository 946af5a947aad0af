#pragma once
// Finding and opening the adapter of an engine.
#include <memory>
#include <string>

#include "tutti/comm/backends/backend.h"

namespace tutti {

// The engine that "gloo", "cpu:mpi" or "cpu:mpi,cuda:nccl" names for the CPU: "tutti", "gloo" or "mpi". kUsage for
// names that are not known, with the nearest that is.
Result<std::string> cpu_engine(const std::string& text);

// Opens libtutti_NAME.so, from TUTTI_ENGINE_PATH, from ../lib/tutti beside the program, or from where tutti was
// installed, and has it open the group. kNotFound says where it was looked for. The shared object stays loaded.
Result<std::unique_ptr<Backend>> open_backend(const std::string& name, const BackendSetup& setup);

}  // namespace tutti
