#pragma once
// The functions of CUDA by which processes of one host share GPU memory. The runtime (runtime.h) lacks none of them
// since CUDA 11.3; the driver's functions are found through the runtime, so that libcuda is not linked.
#include <cstddef>
#include <cstdint>

#include "tutti/base/error.h"

namespace tutti::cuda {

struct IpcHandle {  // cudaIpcMemHandle_t
  std::uint8_t bytes[64] = {};
  friend bool operator==(const IpcHandle&, const IpcHandle&) = default;
};

using DriverPointer = unsigned long long;  // CUdeviceptr

struct IpcFunctions {
  int (*cudaIpcGetMemHandle)(IpcHandle* handle, void* memory);
  int (*cudaIpcOpenMemHandle)(void** memory, IpcHandle handle, unsigned flags);
  int (*cudaIpcCloseMemHandle)(void* memory);
  int (*cuMemGetAddressRange)(DriverPointer* base, std::size_t* bytes, DriverPointer memory);
  int (*cuPointerGetAttribute)(void* value, int attribute, DriverPointer memory);
};

inline constexpr unsigned kEnablePeerAccess = 1;  // cudaIpcMemLazyEnablePeerAccess
inline constexpr int kBufferId = 7;               // CU_POINTER_ATTRIBUTE_BUFFER_ID

// Looks for the functions at the first call in this process. Later calls return the same result.
Result<const IpcFunctions*> ipc_functions();

}  // namespace tutti::cuda
