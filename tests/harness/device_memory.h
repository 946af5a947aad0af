#pragma once
// GPU memory for tests, through the same runtime as tutti's own (tutti/comm/cuda): a real one, or the double of
// tests/fakes/cuda where TUTTI_CUDA_PATH names it. Everything throws what goes wrong.
#include <atomic>
#include <cstddef>
#include <memory>

#include "tutti/comm/group.h"
#include "tutti/comm/request.h"

namespace tutti::test {

// The number of the GPU that this rank computes on.
int device_of(const Group& world);

class DeviceMemory {
 public:
  DeviceMemory(int device, std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;

  std::byte* data() const { return data_; }  // never to be read or written here
  // Through pinned memory. What is read or written has been, when these return; upload() does that on `stream`, behind
  // what stands there, and returns before it is done.
  void upload(const void* from, std::size_t bytes, void* stream);
  void download(void* to, std::size_t bytes) const;

 private:
  const int device_;
  std::byte* data_ = nullptr;
  std::byte* pinned_ = nullptr;
};

// Holds a stream back: what is put on it after this waits until `go`, which outlives this.
class StreamGate {
 public:
  StreamGate(int device, void* stream, std::atomic<bool>& go);
  ~StreamGate();  // opens it
  StreamGate(const StreamGate&) = delete;

 private:
  std::atomic<bool>& go_;
  std::atomic<bool> passed_{false};
};

void* stream_of(int device);  // one a device and process, for callers

// Carries out a request that is made for host memory on copies of its buffers in GPU memory, in place where it is in
// place, and brings the results back.
Status run_on_device(const Group& world, const Request& request);

}  // namespace tutti::test
