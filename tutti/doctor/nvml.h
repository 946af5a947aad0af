#pragma once
// NVIDIA's management library without its header and without linking it: the few functions that the doctor takes.
// They are unchanged since the drivers of 2016. Each returns an nvmlReturn_t, 0 for success.
#include <cstdint>

#include "tutti/base/error.h"

namespace tutti::doctor {

struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlPci {
  char short_address[16];
  unsigned domain, bus, device, id, subsystem;
  char address[32];  // "00000000:17:00.0"
};
using NvmlDevice = void*;

struct Nvml {
  int (*nvmlInit_v2)();
  int (*nvmlShutdown)();
  const char* (*nvmlErrorString)(int error);
  int (*nvmlDeviceGetCount_v2)(unsigned* count);
  int (*nvmlDeviceGetHandleByIndex_v2)(unsigned index, NvmlDevice* device);
  int (*nvmlDeviceGetName)(NvmlDevice device, char* text, unsigned size);
  int (*nvmlDeviceGetUUID)(NvmlDevice device, char* text, unsigned size);
  int (*nvmlDeviceGetMemoryInfo)(NvmlDevice device, NvmlMemory* memory);
  int (*nvmlDeviceGetPciInfo_v3)(NvmlDevice device, NvmlPci* pci);
  int (*nvmlDeviceGetComputeMode)(NvmlDevice device, int* mode);
  int (*nvmlDeviceGetP2PStatus)(NvmlDevice from, NvmlDevice to, int capability, int* status);
};

inline constexpr int kNvmlProhibited = 2, kNvmlExclusiveThread = 1, kNvmlExclusiveProcess = 3;  // nvmlComputeMode_t
inline constexpr int kNvmlP2pRead = 0, kNvmlP2pNvlink = 2;                                      // nvmlGpuP2PCapsIndex_t

// Loads libnvidia-ml.so.1 from a folder of TUTTI_CUDA_PATH if it is there, else as the loader finds it: it belongs to
// the driver, not to CUDA. kNotFound, kUnsupported.
Result<Nvml> load_nvml();

}  // namespace tutti::doctor
