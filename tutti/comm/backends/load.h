#pragma once
// Finding and opening the adapter of an engine.
#include <memory>
#include <string>

#include "tutti/comm/backends/backend.h"

namespace tutti {

// Who carries the memory of which kind of device.
struct Engines {
  std::string cpu = "tutti";    // or gloo, mpi
  std::string cuda = "staged";  // through pinned memory and the CPU's engine; or nccl
};
// Of "gloo", "cpu:mpi", "cpu:tutti,cuda:nccl": a name without a device is the CPU's. kUsage for names that are not
// known, with the nearest that is, and for two engines of one device.
Result<Engines> parse_engines(const std::string& text);
// Those of an option or, where it is empty, of TUTTI_ENGINE, which the sentence of a mistake then names.
Result<Engines> chosen_engines(const std::string& option);
// Other engines have ways and algorithms of their own. kUsage where one of them carries the CPU's memory and a variable
// is set that only tutti heeds (TUTTI_ALGORITHM, ...), or `transport`, an option, says another way than "auto".
Status check_heeded(const Engines& engines, const std::string& transport = {});

// Opens libtutti_NAME.so, from TUTTI_ENGINE_PATH, from ../lib/tutti beside the program, or from where tutti was
// installed, and has it open the group. kNotFound says where it was looked for. The shared object stays loaded.
Result<std::unique_ptr<Backend>> open_backend(const std::string& name, const BackendSetup& setup);
// Whether that could be done, as far as this rank alone can tell.
Status probe_backend(const std::string& name, const BackendSetup& setup);

}  // namespace tutti
