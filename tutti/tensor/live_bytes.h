#pragma once
// How much memory of tensors a piece of a program takes: for activations against their formulas.
#include <cstdint>
#include <memory>

namespace tutti {

// From here on, for the rest of the process, every CPU tensor is counted when its memory is taken and given back, which
// costs about 0.2 us each. Installs the caching allocator (tensor/caching_allocator.h) below. Any thread, any number of
// times; tensors made before are not counted.
void count_live_bytes();

// Taken less given back by this thread since counting began, as asked for (allocators round up). What another thread
// gives back counts there.
std::int64_t live_bytes();

// Counts memory of GPU tensors from here on, taken less given back, by this thread and by the threads on which autograd
// computes for it, as LibTorch's allocator rounds it up. Made and destroyed by one thread. LibTorch's own profiler sees
// no memory meanwhile.
class LiveGpuBytes {
 public:
  LiveGpuBytes();
  ~LiveGpuBytes();
  LiveGpuBytes(const LiveGpuBytes&) = delete;
  LiveGpuBytes& operator=(const LiveGpuBytes&) = delete;
  std::int64_t bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tutti
