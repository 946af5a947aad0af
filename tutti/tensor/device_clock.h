#pragma once
// The clock of a GPU's work (trace/stream_clock.h), by CUDA events on LibTorch's current stream.
#include <c10/core/Device.h>

#include <memory>

#include "tutti/trace/stream_clock.h"

namespace tutti {

// Null for the CPU, and where no CUDA runtime is found. Puts one event on a stream of its own and waits for it, at most
// a second: the time that the host and the GPU have in common. Events are pooled.
std::shared_ptr<StreamClock> device_clock(c10::Device device);

}  // namespace tutti
