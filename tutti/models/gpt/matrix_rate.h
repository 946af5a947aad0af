#pragma once
// What the machine's matrix products reach, for model FLOP utilisation: the share of it that a training makes use of.
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "tutti/comm/group.h"

namespace tutti::gpt {

// Floating point operations a second of all ranks together, which multiply square matrices on their devices at the same
// time for about 0.3 s. Collective.
double matrix_flops_of_all(const Group& world, c10::ScalarType dtype, c10::Device device);

}  // namespace tutti::gpt
