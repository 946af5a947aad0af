#pragma once
// Detects NaN and infinity in buffers of numbers.
#include <cstddef>

#include "tutti/base/dtype.h"

namespace tutti::comm {

// Whether no element is NaN or infinity. Checks floating and complex types; always true for all others. Runs at the
// speed of the memory: a few KiB in the L1 cache take a tenth of a microsecond.
bool all_finite(DType dtype, const void* data, std::size_t count);

}  // namespace tutti::comm
