#pragma once
// A Region (trace/region.h) whose work a GPU does. The region of the thread shows how long the host took to put kernels
// on the stream; the lane of the device, "cuda:0", shows when they ran.
//
//   { DeviceRegion region("forward", device); loss = model(x); }
//
// Two events on the current stream bound the span. They are read when they have passed, at later regions and when the
// trace ends, which waits for them up to ten seconds. On the CPU it is a Region. Costs a relaxed load while no trace is
// under way.
#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <utility>

#include "tutti/trace/region.h"
#include "tutti/trace/stream_clock.h"

namespace tutti {

// From its construction to its destruction, on one thread. `name` and `detail` are as for Region.
class DeviceRegion {
 public:
  DeviceRegion(const char* name, c10::Device device) : DeviceRegion(name, device, [] { return std::string(); }) {}
  template <class Detail>
  DeviceRegion(const char* name, c10::Device device, Detail&& detail) {
    if (is_tracing()) [[unlikely]]
      open(name, device, std::forward<Detail>(detail)());
  }
  ~DeviceRegion() {
    if (region_) [[unlikely]]
      close();
  }
  DeviceRegion(const DeviceRegion&) = delete;
  DeviceRegion& operator=(const DeviceRegion&) = delete;

 private:
  void open(const char* name, c10::Device device, std::string detail);
  void close();

  std::optional<Region> region_;  // none: not traced
  const char* name_ = nullptr;
  std::string detail_;
  c10::Device device_ = c10::kCPU;
  StreamMarkPtr begin_;  // null: of the CPU
};

}  // namespace tutti
