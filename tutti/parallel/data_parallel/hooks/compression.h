#pragma once
// Hooks that halve the bytes sent. f32 (or f64) gradients are rounded to a 16-bit type, averaged (in f32, rounded once
// more), and widened again. bf16 has f32's range and 8 bits of precision. f16 has 11 bits, but values above 65504
// become infinite and values below 6e-8 are lost (LossScaler).
#include <memory>

#include "tutti/parallel/data_parallel/hooks/comm_hook.h"

namespace tutti {

std::shared_ptr<CommHook> bf16_compression();
std::shared_ptr<CommHook> f16_compression();

}  // namespace tutti
