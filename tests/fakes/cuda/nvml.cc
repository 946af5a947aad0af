// A double of NVIDIA's management library: FAKE_CUDA_DEVICES GPUs (8), as the double of the CUDA runtime has them.
// NVLink joins the lower half of them with one another, and the upper half.
//
// FAKE_NVML_ERROR: what nvmlInit_v2 returns; FAKE_NVML_MODE: the compute mode of all GPUs; FAKE_NVML_LOST: the number
// of a GPU that is lost; FAKE_NVML_CLOSED: set if no GPU can access the memory of one that NVLink does not join it to.
#include "tutti/doctor/nvml.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kInvalidArgument = 2, kLost = 15;
using Device = tutti::doctor::NvmlDevice;

int number_from(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}
int devices() { return number_from("FAKE_CUDA_DEVICES", 8); }
int index_of(Device device) { return int(reinterpret_cast<std::uintptr_t>(device)) - 1; }
int state_of(Device device) { return index_of(device) == number_from("FAKE_NVML_LOST", -1) ? kLost : 0; }

}  // namespace

extern "C" {

int nvmlInit_v2() { return number_from("FAKE_NVML_ERROR", 0); }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int error) {
  switch (error) {
    case 0:
      return "Success";
    case kLost:
      return "GPU is lost";
    case 18:
      return "Driver/library version mismatch";
    default:
      return "an error of the double";
  }
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = unsigned(devices());
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  if (int(index) >= devices()) return kInvalidArgument;
  *device = reinterpret_cast<Device>(std::uintptr_t(index) + 1);
  return 0;
}
int nvmlDeviceGetName(Device device, char* text, unsigned size) {
  std::snprintf(text, size, "NVIDIA Double");
  return state_of(device);
}
int nvmlDeviceGetUUID(Device device, char* text, unsigned size) {
  std::snprintf(text, size, "GPU-%02d-double", index_of(device));
  return state_of(device);
}
int nvmlDeviceGetMemoryInfo(Device device, tutti::doctor::NvmlMemory* memory) {
  memory->total = std::uint64_t(80) << 30;
  return state_of(device);
}
int nvmlDeviceGetPciInfo_v3(Device device, tutti::doctor::NvmlPci* pci) {
  std::snprintf(pci->address, sizeof pci->address, "00000000:%02X:00.0", unsigned(index_of(device) + 1));
  return 0;  // also of a lost one
}
int nvmlDeviceGetComputeMode(Device device, int* mode) {
  *mode = number_from("FAKE_NVML_MODE", 0);
  return state_of(device);
}
int nvmlDeviceGetP2PStatus(Device from, Device to, int capability, int* status) {
  const int half = (devices() + 1) / 2;
  const bool joined = index_of(from) / half == index_of(to) / half;
  const bool open = capability == tutti::doctor::kNvmlP2pNvlink ? joined : joined || !std::getenv("FAKE_NVML_CLOSED");
  *status = open ? 0 : 5;  // NVML_P2P_STATUS_NOT_SUPPORTED
  return 0;
}
}
