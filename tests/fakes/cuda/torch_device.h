#pragma once
// A double of LibTorch's CUDA device, for a LibTorch without CUDA. A program that links it has devices cuda:0, cuda:1,
// ...: tensor.is_cuda() is true, autograd runs its threads for them, and production code needs no change.
//
//   Kernels are those of the CPU (torch_kernels.cc), so results have the bits of the CPU. They run when their turn on
//   the current stream comes, and streams are late (cudart.cc). Code that forgets an event reads poison, every time.
//   Memory is the double's: the host cannot touch it. Freed memory is filled with poison in the order of the stream
//   that allocated it, and serves that stream again at once. record_stream() delays that.
//   Poison is bytes of 0xFF: NaN in floating types, -1 in integers.
//   What makes the host wait is counted: fake_cuda_host_waits() (cudart.h).
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <functional>
#include <string>

namespace tutti::fakes {

// The current stream of this thread for a device.
c10::Stream current_stream(c10::Device device);
// Runs `act` when its turn on the stream comes. An exception breaks the device: later calls there throw it.
void enqueue(c10::Stream stream, std::function<void()> act);
// The same for an `act` that waits for something that is on no stream, such as this thread.
void enqueue_waiting(c10::Stream stream, std::function<void()> act);
// Waits, without counting it.
void await(c10::Stream stream);
// What is put on `second` from now on runs after what is on `first` now.
void order(c10::Stream first, c10::Stream second);
void throw_if_broken(c10::Device device);

// Notes that the stream uses this memory of a device, or of pinned memory of the host; other memory is ignored.
void record_use(const c10::DataPtr& memory, c10::Stream stream);
c10::Allocator* device_allocator();
c10::Allocator* pinned_allocator();

// Generators of devices draw the numbers that a CPU generator of the same seed draws: this one.
at::Generator& drawn_from(const at::Generator& of_device);
const at::Generator& default_generator(c10::DeviceIndex device);

}  // namespace tutti::fakes
