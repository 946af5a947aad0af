#pragma once
// The CUDA runtime without its headers and without linking it. A program without a GPU loads nothing of CUDA, and one
// binary supports every version. Contains only what tutti needs, and only functions that are unchanged since CUDA 11.
// (What adapters use is inline, because they do not link tutti.)
#include <cstddef>
#include <string>
#include <utility>

#include "tutti/base/error.h"

namespace tutti::cuda {

// The functions, under their names in the CUDA documentation. Each returns a cudaError_t, 0 for success. Streams and
// events are opaque pointers, as in C.
struct Runtime {
  int (*cudaGetDeviceCount)(int* count);
  int (*cudaGetDevice)(int* device);
  int (*cudaSetDevice)(int device);
  int (*cudaDeviceGetPCIBusId)(char* text, int size, int device);
  int (*cudaMalloc)(void** memory, std::size_t bytes);
  int (*cudaFree)(void* memory);
  int (*cudaHostAlloc)(void** memory, std::size_t bytes, unsigned flags);
  int (*cudaFreeHost)(void* memory);
  int (*cudaHostRegister)(void* memory, std::size_t bytes, unsigned flags);
  int (*cudaHostUnregister)(void* memory);
  int (*cudaMemcpyAsync)(void* to, const void* from, std::size_t bytes, int direction, void* stream);
  int (*cudaStreamCreateWithFlags)(void** stream, unsigned flags);
  int (*cudaStreamDestroy)(void* stream);
  int (*cudaStreamQuery)(void* stream);
  int (*cudaStreamWaitEvent)(void* stream, void* event, unsigned flags);
  int (*cudaEventCreateWithFlags)(void** event, unsigned flags);
  int (*cudaEventDestroy)(void* event);
  int (*cudaEventRecord)(void* event, void* stream);
  int (*cudaEventQuery)(void* event);
  int (*cudaEventElapsedTime)(float* milliseconds, void* from, void* to);
  const char* (*cudaGetErrorString)(int error);
  int (*cudaGetLastError)();

  // An error if `code` is not 0: "CUDA could not copy: out of memory (error 2)".
  Status check(int code, const char* doing) const {
    if (code == 0) return {};
    cudaGetLastError();  // otherwise a later call in this thread would return this error
    return Error{.code = Code::kSystem,
                 .detail = std::string("CUDA could not ") + doing + ": " + cudaGetErrorString(code) + " (error " +
                           std::to_string(code) + ")",
                 .hint = hint_of(code)};
  }

  static const char* hint_of(int code) {
    switch (code) {
      case 2:  // cudaErrorMemoryAllocation
        return "nvidia-smi shows which processes hold the memory";
      case 46:  // cudaErrorDevicesUnavailable
        return "another process has this GPU in exclusive mode (nvidia-smi -q -d COMPUTE; as root: nvidia-smi -c "
               "DEFAULT), or the driver has lost it (dmesg | grep -i xid)";
      case 214:  // cudaErrorECCUncorrectable
      case 719:  // cudaErrorLaunchFailure
      case 999:  // cudaErrorUnknown
        return "a kernel failed, or the GPU is lost: dmesg | grep -i xid shows which; this process cannot use the GPU "
               "any more";
      case 700:  // cudaErrorIllegalAddress
        return "a kernel accessed memory that is not its own: CUDA_LAUNCH_BLOCKING=1 shows which";
      case 802:  // cudaErrorSystemNotReady
        return "the fabric manager of the NVSwitches does not run: systemctl status nvidia-fabricmanager";
      default:
        return "";
    }
  }
};

inline constexpr int kOutOfMemory = 2;         // cudaErrorMemoryAllocation
inline constexpr int kNotReady = 600;          // cudaErrorNotReady
inline constexpr int kAnyDirection = 4;        // cudaMemcpyDefault: the runtime infers it from the addresses
inline constexpr unsigned kNonBlocking = 1;    // cudaStreamNonBlocking: does not wait for the default stream
inline constexpr unsigned kWithoutTiming = 2;  // cudaEventDisableTiming
inline constexpr unsigned kPortable = 1;  // cudaHostAllocPortable, cudaHostRegisterPortable: pinned for all devices

// The runtime's library, for dlsym().
Result<void*> runtime_library();
// Loads the runtime at the first call in this process. Later calls return the same result.
Result<const Runtime*> runtime();
// The runtime, if this process may use this device. Else an error: no runtime, no driver, no such device.
Result<const Runtime*> runtime_with(int device);

// Makes a device current in this thread and restores the previous device at the end of the scope.
class OnDevice {
 public:
  OnDevice(const Runtime& runtime, int device) : runtime_(runtime) {
    runtime_.cudaGetDevice(&before_);
    if (before_ != device) runtime_.cudaSetDevice(device);
    changed_ = before_ != device;
  }
  ~OnDevice() {
    if (changed_) runtime_.cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;

 private:
  const Runtime& runtime_;
  int before_ = 0;
  bool changed_ = false;
};

// A position on a stream that can be queried for completion. Empty, or created on the device that was current.
class Event {
 public:
  Event() = default;
  static Result<Event> make(const Runtime& runtime) {
    Event event;
    TUTTI_TRY(runtime.check(runtime.cudaEventCreateWithFlags(&event.handle_, kWithoutTiming), "make an event"));
    event.runtime_ = &runtime;
    return event;
  }
  Event(Event&& other) noexcept { *this = std::move(other); }
  Event& operator=(Event&& other) noexcept {
    std::swap(runtime_, other.runtime_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Event() {
    if (handle_) runtime_->cudaEventDestroy(handle_);
  }
  explicit operator bool() const { return handle_ != nullptr; }
  void* get() const { return handle_; }
  Status record(void* stream) { return runtime_->check(runtime_->cudaEventRecord(handle_, stream), "mark a stream"); }
  Result<bool> has_passed() const {
    const int code = runtime_->cudaEventQuery(handle_);
    if (code == kNotReady) {
      runtime_->cudaGetLastError();
      return false;
    }
    TUTTI_TRY(runtime_->check(code, "run the earlier work of the stream"));
    return true;
  }

 private:
  const Runtime* runtime_ = nullptr;
  void* handle_ = nullptr;
};

}  // namespace tutti::cuda
