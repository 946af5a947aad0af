#pragma once
// Hooks that halve what travels: f32 (or f64) gradients are rounded to a 16-bit type, averaged (in f32, rounded once
// more), and widened again. bf16 keeps f32's range and 8 bits of precision; f16 keeps 11 bits, but whatever is above
// 65504 becomes infinite and whatever is below 6e-8 is lost (LossScaler).
#include <memory>

#include "tutti/parallel/data_parallel/hooks/comm_hook.h"

namespace tutti {

std::shared_ptr<CommHook> bf16_compression();
std::shared_ptr<CommHook> f16_compression();

}  // namespace tutti
