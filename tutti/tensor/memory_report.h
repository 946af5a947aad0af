#pragma once
// What to say where a device has no memory left.
#include <functional>
#include <string>
#include <vector>

#include "tutti/tensor/named_tensor.h"

namespace tutti {

class Group;

// Runs `act`. If LibTorch has no memory left for it, throws an Exception (kLimit) with the rank, `where` ("step 5"),
// what LibTorch asked for, and what the parameters and their gradients take.
void report_memory(const Group& world, const std::string& where,
                   const std::function<std::vector<NamedTensor>()>& parameters, const std::function<void()>& act);

}  // namespace tutti
