#pragma once
// Finds and opens the adapter of a backend.
#include <memory>
#include <string>

#include "tutti/comm/backends/backend.h"

namespace tutti::comm {

// The name of the backend for each kind of device memory.
struct Engines {
  std::string cpu = "tutti";  // or gloo, mpi
  std::string cuda = "ipc";   // directly between GPUs of a host; or nccl; or staged: always through the CPU's backend
};
// Parses "gloo", "cpu:mpi", "cpu:tutti,cuda:nccl". A name without a device is for the CPU. Fails with kUsage for an
// unknown name, with the nearest known name, and for two backends of one device.
Result<Engines> parse_engines(const std::string& text);
// Parses the option or, if it is empty, TUTTI_ENGINE, whose name then appears in the error.
Result<Engines> chosen_engines(const std::string& option);
// Other backends have their own transports and algorithms. Fails with kUsage if one of them is chosen for CPU memory
// and a variable that only tutti uses (TUTTI_ALGORITHM, ...) is set, or the option `transport` is set to anything but
// "auto".
Status check_heeded(const Engines& engines, const std::string& transport = {});

// Opens libtutti_NAME.so and has it open the group. Searches TUTTI_ENGINE_PATH, ../lib/tutti beside the program, and
// tutti's installation folder. Fails with kNotFound, with the list of folders. The shared object stays loaded.
Result<std::unique_ptr<Backend>> open_backend(const std::string& name, const BackendSetup& setup);
// The version of the library of the backend, without spaces; empty if it has none. Fails if open_backend() would fail,
// as far as this rank alone can determine.
Result<std::string> probe_backend(const std::string& name, const BackendSetup& setup);

}  // namespace tutti::comm
