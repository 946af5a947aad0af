#pragma once
// Which GPUs a process may use, without asking CUDA, which would take a second and memory on each of them.
#include <string>
#include <vector>

#include "tutti/base/env.h"

namespace tutti {

// As CUDA_VISIBLE_DEVICES names them ("0", "GPU-8f2a..."), in CUDA's order: its entries where it is set, else a number
// for each device file below `devices`.
std::vector<std::string> visible_gpus(const Environment& environment, const std::string& devices = "/dev");

}  // namespace tutti
