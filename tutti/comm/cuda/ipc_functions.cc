#include "tutti/comm/cuda/ipc_functions.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "tutti/comm/cuda/runtime.h"

namespace tutti::cuda {
namespace {

constexpr unsigned kVersion = 12000;  // whose forms of the driver's functions these are; unchanged since CUDA 3.2

using FindByVersion = int (*)(const char* name, void** function, unsigned version, unsigned long long flags,
                              int* found);
using Find = int (*)(const char* name, void** function, unsigned long long flags, int* found);

template <class Function>
void take_symbol(Function& function, void* library, const char* name) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
}

// A function of the driver; null if there is none.
void* driver_function(void* library, const char* name) {
  FindByVersion find_by_version = nullptr;
  Find find = nullptr;
  take_symbol(find_by_version, library, "cudaGetDriverEntryPointByVersion");
  take_symbol(find, library, "cudaGetDriverEntryPoint");  // of CUDA 11.3 to 12.4
  void* function = nullptr;
  int found = 0;
  const int code = find_by_version ? find_by_version(name, &function, kVersion, 0, &found)
                   : find          ? find(name, &function, 0, &found)
                                   : 1;
  return code == 0 && found == 0 ? function : nullptr;
}

Result<IpcFunctions> load_ipc() {
  void* const library = TUTTI_TRY(runtime_library());
  IpcFunctions f{};
  take_symbol(f.cudaIpcGetMemHandle, library, "cudaIpcGetMemHandle");
  take_symbol(f.cudaIpcOpenMemHandle, library, "cudaIpcOpenMemHandle");
  take_symbol(f.cudaIpcCloseMemHandle, library, "cudaIpcCloseMemHandle");
  f.cuMemGetAddressRange =
      reinterpret_cast<decltype(f.cuMemGetAddressRange)>(driver_function(library, "cuMemGetAddressRange"));
  f.cuPointerGetAttribute =
      reinterpret_cast<decltype(f.cuPointerGetAttribute)>(driver_function(library, "cuPointerGetAttribute"));
  if (!f.cudaIpcGetMemHandle || !f.cudaIpcOpenMemHandle || !f.cudaIpcCloseMemHandle || !f.cuMemGetAddressRange ||
      !f.cuPointerGetAttribute)
    return Error{.code = Code::kUnsupported, .detail = "this CUDA runtime or driver does not share memory by handles"};
  return f;
}

}  // namespace

Result<const IpcFunctions*> ipc_functions() {
  static const Result<IpcFunctions>* const loaded =
      new Result<IpcFunctions>(load_ipc());  // never freed, as the runtime
  if (!loaded->ok()) return loaded->status();
  return &**loaded;
}

}  // namespace tutti::cuda
