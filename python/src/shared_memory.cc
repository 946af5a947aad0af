#include "shared_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#include <algorithm>
#include <unordered_map>

namespace tutti::python {
namespace {

constexpr std::uint8_t kPriority = 100;

// Hands out memory of a group's shared heap as CPU tensors, and ordinary memory where there is none: after the shutdown
// of the group, when the heap is full, and in a process that was forked, which cannot read what peers write.
//
// PyTorch's operators also use allocators without a DataPtr (raw_allocate()). So the context of a DataPtr is the data
// itself, one deleter frees both kinds of memory, and a map has the owners of what is shared.
//
// Never destroyed: tensors may outlive everything. Threads: any. No GIL is taken while the mutex is held.
class SharedMemoryAllocator final : public c10::Allocator {
 public:
  static SharedMemoryAllocator& of_process() {
    static auto* const only = new SharedMemoryAllocator();
    return *only;
  }

  void enter(const SharedMemory* memory) {
    const MutexLock lock(mutex_);
    entered_.push_back({memory, memory->backend()});
    if (entered_.size() == 1) c10::SetCPUAllocator(this, kPriority);
  }

  void leave(const SharedMemory* memory) {
    const MutexLock lock(mutex_);
    const auto last = std::find_if(entered_.rbegin(), entered_.rend(),
                                   [&](const Entered& entered) { return entered.memory == memory; });
    if (last == entered_.rend()) return;
    entered_.erase(std::next(last).base());
    if (entered_.empty()) c10::SetCPUAllocator(ordinary_, kPriority);
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = bytes == 0 ? nullptr : allocate_shared(bytes);
    if (!data) data = ordinary_->raw_allocate(bytes);
    return {data, data, &SharedMemoryAllocator::free, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &SharedMemoryAllocator::free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  using Owner = std::shared_ptr<std::byte>;
  struct Entered {
    const SharedMemory* memory;
    c10::weak_intrusive_ptr<TuttiBackend> backend;
  };

  SharedMemoryAllocator() {
    if (!ordinary_->raw_deleter()) ordinary_ = c10::GetDefaultCPUAllocator();
    // A thread may hold the mutex while another one forks.
    (void)::pthread_atfork([] { of_process().before_fork(); }, [] { of_process().after_fork(false); },
                           [] { of_process().after_fork(true); });
  }
  void before_fork() TUTTI_NO_THREAD_SAFETY_ANALYSIS { mutex_.lock(); }
  void after_fork(bool in_child) TUTTI_NO_THREAD_SAFETY_ANALYSIS {
    is_fork_ = is_fork_ || in_child;
    mutex_.unlock();
  }

  // Null: ordinary memory instead.
  void* allocate_shared(std::size_t bytes) {
    std::optional<c10::weak_intrusive_ptr<TuttiBackend>> entered;
    {
      const MutexLock lock(mutex_);
      if (is_fork_ || entered_.empty()) return nullptr;
      entered = entered_.back().backend;
    }
    const auto backend = entered->lock();
    const Group group = backend ? backend->group_or_none() : Group();
    if (!group) return nullptr;
    Result<Owner> memory = group.allocate(bytes);
    if (!memory.ok()) {
      TORCH_WARN_ONCE("tutti.shared_memory(): ", to_string(memory.error()),
                      ". This tensor is in ordinary memory, as others may be: collectives on them are slower");
      return nullptr;
    }
    void* const data = memory->get();
    const MutexLock lock(mutex_);
    owners_.emplace(data, *std::move(memory));
    return data;
  }

  static void free(void* data) { of_process().release(data); }

  void release(void* data) {
    Owner owner;  // goes without the lock
    {
      const MutexLock lock(mutex_);
      if (const auto found = owners_.find(data); found != owners_.end()) {
        if (is_fork_) return;  // the heap is its parent's
        owner = std::move(found->second);
        owners_.erase(found);
      }
    }
    if (!owner) ordinary_->raw_deallocate(data);
  }

  c10::Allocator* ordinary_ = c10::GetCPUAllocator();
  Mutex mutex_;
  bool is_fork_ TUTTI_GUARDED_BY(mutex_) = false;
  std::vector<Entered> entered_ TUTTI_GUARDED_BY(mutex_);
  std::unordered_map<void*, Owner> owners_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace

void SharedMemory::enter() { SharedMemoryAllocator::of_process().enter(this); }
void SharedMemory::leave() { SharedMemoryAllocator::of_process().leave(this); }

}  // namespace tutti::python
