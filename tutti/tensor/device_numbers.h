#pragma once
// Devices by numbers that mean the same on every rank. The indices of GPUs do not: each rank has its own.
#include <c10/core/Device.h>

#include <algorithm>
#include <vector>

namespace tutti {

class DeviceNumbers {
 public:
  // 0: the CPU; GPUs from 1 on, in the order in which they are first asked for.
  int of(const c10::Device& device) {
    if (device.is_cpu()) return 0;
    const auto known = std::find(seen_.begin(), seen_.end(), device);
    const auto number = int(known - seen_.begin()) + 1;
    if (known == seen_.end()) seen_.push_back(device);
    return number;
  }

 private:
  std::vector<c10::Device> seen_;
};

}  // namespace tutti
