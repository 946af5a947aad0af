// An allocator over the one that is there. What it hands out has its own address as its context, as some of LibTorch
// (oneDNN's scratch memory) frees by the bare pointer; so the sizes stand in a table by address.
#include "tutti/tensor/live_bytes.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <unordered_map>

#include "tutti/base/mutex.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/compat.h"

namespace tutti {
namespace {

thread_local std::int64_t bytes_of_thread = 0;

class CountingAllocator final : public compat::Allocator {
 public:
  // Never destroyed: static tensors of the program may be freed after any destructor of ours.
  static CountingAllocator& instance() {
    static auto* const only = new CountingAllocator;
    return *only;
  }
  void install_over(c10::Allocator* below) {
    below_ = below;
    c10::SetCPUAllocator(this, kPriority);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }

 protected:
  c10::DataPtr get(std::size_t bytes) const override {
    c10::DataPtr memory = below_.load()->allocate(bytes);
    void* const data = memory.get();
    if (!data) return memory;
    const MutexLock lock(mutex_);
    taken_.insert_or_assign(data, Taken{std::move(memory), std::int64_t(bytes)});
    bytes_of_thread += std::int64_t(bytes);
    return {data, data, &give_back, at::Device(at::DeviceType::CPU)};
  }

 private:
  struct Taken {
    c10::DataPtr memory;
    std::int64_t bytes = 0;
  };

  static void give_back(void* data) {
    CountingAllocator& all = instance();
    Taken gone;  // leaves after the lock
    const MutexLock lock(all.mutex_);
    const auto at = all.taken_.find(data);
    if (at == all.taken_.end()) return;
    gone = std::move(at->second);
    all.taken_.erase(at);
    bytes_of_thread -= gone.bytes;
  }

  static constexpr std::uint8_t kPriority = 2;  // above the caching allocator's

  std::atomic<c10::Allocator*> below_ = nullptr;
  mutable Mutex mutex_;
  mutable std::unordered_map<void*, Taken> taken_ TUTTI_GUARDED_BY(mutex_);
};

// std::int64_t or std::size_t, as the version of LibTorch has it.
template <class Report>
struct TotalOf;
template <class T>
struct TotalOf<void (c10::MemoryReportingInfoBase::*)(void*, std::int64_t, T, T, c10::Device)> {
  using Type = T;
};
using Total = TotalOf<decltype(&c10::MemoryReportingInfoBase::reportMemoryUsage)>::Type;

// LibTorch hands the allocator to other threads without a lock, so it is made before there are any.
[[maybe_unused]] const auto& kCountingAllocator = CountingAllocator::instance();

}  // namespace

void count_live_bytes() {
  static const bool installed = [] {
    install_caching_allocator();
    CountingAllocator::instance().install_over(c10::GetCPUAllocator());
    return true;
  }();
  (void)installed;
}

std::int64_t live_bytes() { return bytes_of_thread; }

// Allocators of devices report to whoever takes the place of the profiler.
struct LiveGpuBytes::State {
  struct Report final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, std::int64_t size, Total, Total, c10::Device device) override {
      if (device.is_cuda()) bytes += size;
    }
    bool memoryProfilingEnabled() const override { return true; }
    std::atomic<std::int64_t> bytes = 0;
  };
  const std::shared_ptr<Report> report = std::make_shared<Report>();
  const c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, report};
};

LiveGpuBytes::LiveGpuBytes() : state_(std::make_unique<State>()) {}
LiveGpuBytes::~LiveGpuBytes() = default;
std::int64_t LiveGpuBytes::bytes() const { return state_->report->bytes; }

}  // namespace tutti
