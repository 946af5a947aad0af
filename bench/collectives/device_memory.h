#pragma once
// Two buffers in the memory of a GPU, and their like in that of the host, in which they are filled and looked at.
#include <cstddef>
#include <memory>

#include "tutti/comm/group.h"

namespace tutti::bench {

class DeviceBuffers {
 public:
  // On the GPU on which this rank computes; `a` and `b` have `bytes` each and outlive this. An error where there is
  // none.
  static Result<std::unique_ptr<DeviceBuffers>> make(const Group& world, std::byte* a, std::byte* b, std::size_t bytes);
  ~DeviceBuffers();
  DeviceBuffers(const DeviceBuffers&) = delete;

  int device() const { return device_; }
  // Where the byte at `host`, in one of the two, is on the GPU.
  std::byte* on_device(const std::byte* host) const;
  // The first `bytes` of both, done when these return. Throw Exception.
  void upload(std::size_t bytes);
  void download(std::size_t bytes);

 private:
  DeviceBuffers() = default;
  void copy(std::byte* to, const std::byte* from, std::size_t bytes);
  void wait();

  int device_ = 0;
  std::size_t bytes_ = 0;
  std::byte* host_[2] = {};
  bool is_pinned_[2] = {};
  void* memory_[2] = {};
};

}  // namespace tutti::bench
