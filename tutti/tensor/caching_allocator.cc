// Blocks come in size classes, sixteen to a power of two, so at most a sixteenth is wasted; a class has a list of idle
// blocks, and a request takes the one that was put back last, which is the warmest. A training step asks for the same
// sizes every time, so from the second step on nothing is fresh.
//
// A block belongs to a place: private memory, or the heap of the newest HeapTensors. Only blocks of the current place
// are kept idle; a block of another place is freed with its tensor. So a heap is released when its last tensor is gone,
// and a world can end.
//
// What is particular about a process-wide allocator:
//  - It is never destroyed: static tensors of the program may be freed after any destructor of ours.
//  - fork(): heap memory is not inherited. The handlers hold the lock across the fork, so that the lists are whole in
//    the child. The child forgets all blocks of a heap, and does not free them. For this reason the records of blocks
//    are in private memory.
//  - Some of LibTorch (oneDNN's scratch memory) frees by the bare pointer. A pointer on a page boundary is searched
//    among the blocks; any other came from malloc.
//  - If memory runs out, idle blocks are freed and the request is tried once more, then private memory. Then an
//    Exception (kLimit) says how much was asked for. It takes the place of the c10::Error of LibTorch's allocator.
#include "tutti/tensor/caching_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tutti/base/mutex.h"
#include "tutti/comm/group.h"
#include "tutti/tensor/compat.h"

namespace tutti {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kLarge = std::size_t(64) << 10;
constexpr std::size_t kHugePage = std::size_t(2) << 20;
constexpr std::size_t kLargest = std::size_t(1) << 47;  // what a process can address at all
constexpr int kClasses = 47 * 16;

// The class of the smallest block that holds `bytes` (kPage to kLargest).
constexpr int size_class(std::size_t bytes) {
  const int exponent = std::bit_width(bytes - 1) - 1;  // 2^exponent < bytes <= 2^(exponent + 1)
  return exponent * 16 + int(((bytes - 1) >> (exponent - 4)) & 15);
}
std::size_t class_bytes(int size_class) {
  const int exponent = size_class / 16, sixteenth = size_class % 16;
  return (std::size_t(1) << exponent) + (std::size_t(sixteenth + 1) << (exponent - 4));
}

static_assert(size_class(kLargest) == kClasses - 1);

constexpr std::uint64_t kPrivate = 0;

struct Block {
  std::shared_ptr<std::byte> memory;
  std::byte* data = nullptr;  // in it, on a page boundary
  int size_class = 0;
  // The number of the HeapTensors that it came from; not the object, which would keep its world alive.
  std::uint64_t heap = kPrivate;
  unsigned process = 0;  // counts forks: of the process that made it
};

// The sources that are attached, the newest last.
struct Attached {
  std::uint64_t number = kPrivate;
  std::shared_ptr<const HeapTensors::Source> source;
};

std::shared_ptr<std::byte> private_memory(std::size_t bytes) {
  void* memory = nullptr;
  const bool huge = bytes >= kHugePage / 2;
  if (::posix_memalign(&memory, huge ? kHugePage : kPage, bytes) != 0) return nullptr;
  if (huge) ::madvise(memory, bytes, MADV_HUGEPAGE);
  return {static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }};
}

class CachingAllocator final : public compat::Allocator {
 public:
  static CachingAllocator& instance() {
    static auto* allocator = new CachingAllocator;  // never destroyed, see above
    return *allocator;
  }

  void configure(CachingAllocatorOptions options) {
    {
      const MutexLock lock(mutex_);
      options_ = options;
    }
    release_idle();
  }

  void attach(std::shared_ptr<const HeapTensors::Source> source) {
    {
      const MutexLock lock(mutex_);
      sources_.push_back({++last_number_, std::move(source)});
    }
    release_idle();
  }
  void detach(const std::shared_ptr<const HeapTensors::Source>& source) {
    {
      const MutexLock lock(mutex_);
      std::erase_if(sources_, [&](const Attached& attached) { return attached.source == source; });
    }
    release_idle();
  }

  CachingAllocatorStats stats() const {
    const MutexLock lock(mutex_);
    return stats_;
  }

  void release_idle() const {
    std::vector<Block*> victims;
    {
      const MutexLock lock(mutex_);
      for (auto& list : idle_) {
        victims.insert(victims.end(), list.begin(), list.end());
        list.clear();
      }
      for (const auto* block : victims) forget(*block, stats_.idle_bytes);
    }
    for (auto* block : victims) delete block;
  }

 private:
  CachingAllocator() {
    static CachingAllocator* self;
    self = this;
    ::pthread_atfork([]() TUTTI_THREAD_ANNOTATION(acquire_capability(self->mutex_)) { self->mutex_.lock(); },
                     []() TUTTI_THREAD_ANNOTATION(release_capability(self->mutex_)) { self->mutex_.unlock(); },
                     []() TUTTI_THREAD_ANNOTATION(release_capability(self->mutex_)) { self->after_fork_in_child(); });
  }

  c10::DataPtr get(std::size_t bytes) const override {
    if (bytes == 0) return {nullptr, nullptr, &let_go, c10::Device(c10::DeviceType::CPU)};
    void* data = bytes < kLarge ? take_small(bytes) : nullptr;
    if (!data) data = take(std::max(bytes, kPage))->data;
    return {data, data, &let_go, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &let_go; }

  static bool on_page(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % kPage == 0; }

  static void let_go(void* data) {
    if (on_page(data)) {
      if (data) instance().put_back(data);
    } else {
      std::free(data);
    }
  }

  // From malloc, and never on a page boundary: that distinguishes it from a block. Null if malloc keeps returning whole
  // pages for this size, as jemalloc, tcmalloc and TSan's do from 16 KiB on: then it has to be a block.
  static void* take_small(std::size_t bytes, int tries = 8) {
    void* memory = nullptr;
    if (::posix_memalign(&memory, kAlignment, bytes) != 0) fail(bytes);
    if (!on_page(memory)) return memory;
    const std::unique_ptr<void, decltype(&std::free)> unusable(memory, &std::free);  // held, or the next try gets it
    return tries > 1 ? take_small(bytes, tries - 1) : nullptr;
  }

  Block* take(std::size_t bytes) const {
    if (bytes > kLargest) fail(bytes);
    const int wanted = size_class(bytes);
    Attached current;
    {
      const MutexLock lock(mutex_);
      if (auto& list = idle_[wanted]; !list.empty()) {
        Block* block = list.back();
        list.pop_back();
        stats_.idle_bytes -= class_bytes(wanted);
        stats_.live_bytes += class_bytes(wanted);
        ++stats_.reused_blocks;
        return block;
      }
      if (!sources_.empty()) current = sources_.back();
    }
    Block* block = make(wanted, current);
    if (!block) {
      release_idle();
      block = make(wanted, current);
    }
    if (!block) block = make(wanted, {});
    if (!block) fail(bytes);
    const MutexLock lock(mutex_);
    blocks_.emplace(block->data, block);
    block->process = process_;
    stats_.live_bytes += class_bytes(wanted);
    stats_.heap_bytes += block->heap != kPrivate ? class_bytes(wanted) : 0;
    ++stats_.fresh_blocks;
    return block;
  }

  static Block* make(int size_class, const Attached& from) {
    std::shared_ptr<std::byte> memory;
    if (from.source) {
      auto given = (*from.source)(class_bytes(size_class));
      if (given.ok() && !on_page(given->get())) given = (*from.source)(class_bytes(size_class) + kPage);
      if (given.ok()) memory = *std::move(given);
    } else {
      memory = private_memory(class_bytes(size_class));
    }
    if (!memory) return nullptr;
    auto* data =
        reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory.get()) + kPage - 1) / kPage * kPage);
    return new Block{.memory = std::move(memory), .data = data, .size_class = size_class, .heap = from.number};
  }

  void put_back(void* data) const {
    Block* block = nullptr;
    {
      const MutexLock lock(mutex_);
      block = blocks_.at(data);
      const std::size_t bytes = class_bytes(block->size_class);
      // The parent's heap: nothing of it exists here.
      if (block->process != process_ && block->heap != kPrivate) return;
      const bool current = block->heap == (sources_.empty() ? kPrivate : sources_.back().number);
      if (current && bytes <= options_.max_idle_bytes && stats_.idle_bytes <= options_.max_idle_bytes - bytes) {
        idle_[block->size_class].push_back(block);
        stats_.live_bytes -= bytes;
        stats_.idle_bytes += bytes;
        return;
      }
      forget(*block, stats_.live_bytes);
    }
    delete block;
  }

  void forget(const Block& block, std::size_t& counter) const TUTTI_REQUIRES(mutex_) {
    blocks_.erase(block.data);
    counter -= class_bytes(block.size_class);
    if (block.heap != kPrivate) stats_.heap_bytes -= class_bytes(block.size_class);
  }

  // Runs in the only thread of the child, with the lock held since before the fork. What belonged to a heap is leaked
  // on purpose: freeing it would write to memory that is not there.
  void after_fork_in_child() TUTTI_THREAD_ANNOTATION(release_capability(mutex_)) {
    ++process_;
    for (auto& list : idle_) {
      for (const auto* block : list) {
        if (block->heap != kPrivate) stats_.idle_bytes -= class_bytes(block->size_class);
      }
      std::erase_if(list, [](const Block* block) { return block->heap != kPrivate; });
    }
    stats_.heap_bytes = 0;
    new std::vector(std::move(sources_));
    sources_.clear();
    mutex_.unlock();
  }

  [[noreturn]] static void fail(std::size_t bytes) {
    throw Exception(Error{.code = Code::kLimit,
                          .detail = "no memory for a tensor of " + std::to_string(bytes) + " bytes",
                          .hint = "a smaller batch or model, or more memory"});
  }

  mutable Mutex mutex_;
  mutable std::unordered_map<void*, Block*> blocks_ TUTTI_GUARDED_BY(mutex_);  // by data, in tensors and idle
  mutable std::array<std::vector<Block*>, kClasses> idle_ TUTTI_GUARDED_BY(mutex_);
  mutable CachingAllocatorStats stats_ TUTTI_GUARDED_BY(mutex_);
  CachingAllocatorOptions options_ TUTTI_GUARDED_BY(mutex_);
  std::vector<Attached> sources_ TUTTI_GUARDED_BY(mutex_);
  std::uint64_t last_number_ TUTTI_GUARDED_BY(mutex_) = kPrivate;
  unsigned process_ TUTTI_GUARDED_BY(mutex_) = 0;
};

constexpr std::uint8_t kPriority = 1;  // above LibTorch's own
// LibTorch hands the allocator to other threads without a lock, so it is made before there are any.
[[maybe_unused]] const auto& kCachingAllocator = CachingAllocator::instance();

}  // namespace

void install_caching_allocator(CachingAllocatorOptions options) {
  CachingAllocator::instance().configure(options);
  c10::SetCPUAllocator(&CachingAllocator::instance(), kPriority);
}

HeapTensors::HeapTensors(const Group& group)
    : HeapTensors(group.size() > group.nodes() ? [group](std::size_t bytes) { return group.allocate(bytes); }
                                               : Source()) {}

HeapTensors::HeapTensors(Source source)
    : source_(source ? std::make_shared<const Source>(std::move(source)) : nullptr) {
  c10::SetCPUAllocator(&CachingAllocator::instance(), kPriority);
  if (source_) CachingAllocator::instance().attach(source_);
}

HeapTensors::~HeapTensors() {
  if (source_) CachingAllocator::instance().detach(source_);
}

CachingAllocatorStats caching_allocator_stats() { return CachingAllocator::instance().stats(); }
void release_idle_tensor_memory() { CachingAllocator::instance().release_idle(); }

}  // namespace tutti
