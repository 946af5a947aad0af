#pragma once
// What a training program says where its device has no memory left, or fails.
#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "tutti/tensor/named_tensor.h"

namespace tutti {

class Group;

// What a training holds on its device.
struct HeldMemory {
  std::vector<NamedTensor> parameters;  // with their gradients
  std::size_t optimizer_bytes = 0;
};

// Runs `act`. An error of the device that LibTorch throws from it becomes an Exception that names the rank, the device
// and `when` ("in step 5"). It is kLimit where no memory is left, with what LibTorch asked for and what `held` gives;
// else kSystem, with what to do. `held` may be null.
void report_device_errors(const Group& world, std::string_view when, const std::function<HeldMemory()>& held,
                          const std::function<void()>& act);

}  // namespace tutti
