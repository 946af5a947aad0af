// Memory, streams, generators: all of LibTorch's CUDA device but its kernels.
#include "tests/fakes/cuda/torch_device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Utils.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "tests/fakes/cuda/cudart.h"
#include "tests/fakes/cuda/runtime_calls.h"
#include "tutti/tensor/compat.h"

namespace tutti::fakes {
namespace {

constexpr int kDevices = 64, kPoolStreams = 32;
constexpr int kPoison = 0xFF;

c10::Device device_number(int index) { return c10::Device(c10::DeviceType::CUDA, c10::DeviceIndex(index)); }
c10::Stream stream_number(int device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, device_number(device), id);
}

class OnDevice {
 public:
  explicit OnDevice(int device) {
    cudaGetDevice(&before_);
    cudaSetDevice(device);
  }
  ~OnDevice() { cudaSetDevice(before_); }

 private:
  int before_ = 0;
};

void require(int code, const char* doing) {
  TORCH_CHECK(code == 0, "CUDA error: ", cudaGetErrorString(code), " (", code, " of the double: ", doing, ")");
}

// What a query says.
bool has_passed(int code) {
  constexpr int kNotReady = 600;
  if (code != kNotReady) require(code, "a query");
  return code == 0;
}

// Streams of the pool have the numbers 1 to kPoolStreams, the default stream has 0.
class Streams {
 public:
  c10::Stream next(int device) {
    const std::lock_guard lock(mutex_);
    const int id = next_[device]++ % kPoolStreams + 1;
    void*& handle = handles_[device][id];
    const OnDevice on(device);
    if (!handle) cudaStreamCreateWithFlags(&handle, 1);
    return stream_number(device, id);
  }
  void* handle(c10::Stream stream) {
    const std::lock_guard lock(mutex_);
    return handles_[stream.device_index()][stream.id()];
  }

 private:
  std::mutex mutex_;
  int next_[kDevices] = {};
  void* handles_[kDevices][kPoolStreams + 1] = {};
};

Streams& streams() {
  static Streams* const all = new Streams;
  return *all;
}
void* handle_of(c10::Stream stream) { return streams().handle(stream); }

thread_local std::array<c10::StreamId, kDevices> current_streams{};

std::mutex broken_mutex;
std::string broken[kDevices];

// The caching allocator of one kind of memory.
class Blocks final : public compat::Allocator {
 public:
  explicit Blocks(bool on_device) : on_device_(on_device) {}
  c10::DataPtr get(std::size_t bytes) const override {
    int device = 0;
    cudaGetDevice(&device);
    const c10::Device place = on_device_ ? device_number(device) : c10::Device(c10::kCPU);
    if (bytes == 0) return {nullptr, place};
    const c10::Stream stream = on_device_ ? current_stream(place) : stream_number(0, 0);
    Block* const block = take({device * int(on_device_), stream.id(), (bytes + 511) / 512 * 512});
    block->report(1);
    return {block->data, block, &release, place};
  }

  static void record(const c10::DataPtr& memory, c10::Stream stream) {
    if (memory.get_deleter() != &release) return;
    auto* const block = static_cast<Block*>(memory.get_context());
    const std::lock_guard lock(block->owner->mutex_);
    if (block->owner->on_device_ && block->stream() == stream) return;
    if (std::find(block->users.begin(), block->users.end(), stream) == block->users.end())
      block->users.push_back(stream);
  }

 private:
  using Key = std::tuple<int, c10::StreamId, std::size_t>;  // device, stream, bytes
  struct Block {
    const Blocks* owner;
    Key key;
    void* data;
    std::vector<c10::Stream> users;
    c10::Stream stream() const { return stream_number(std::get<0>(key), std::get<1>(key)); }
    // As CUDA's allocator does, to profilers.
    void report(int sign) const {
      const auto bytes = std::int64_t(std::get<2>(key));
      if (owner->on_device_) c10::reportMemoryUsageToProfiler(data, sign * bytes, 0, 0, stream().device());
    }
    void poison() const { std::memset(fake_cuda_bytes(data), kPoison, std::get<2>(key)); }
  };

  Block* take(const Key& key) const {
    const std::lock_guard lock(mutex_);
    if (const auto found = free_.find(key); found != free_.end()) {
      Block* const block = found->second;
      free_.erase(found);
      return block;
    }
    auto* const block = new Block{.owner = this, .key = key, .data = nullptr, .users = {}};
    const std::size_t bytes = std::get<2>(key);
    const int code = on_device_ ? cudaMalloc(&block->data, bytes) : cudaHostAlloc(&block->data, bytes, 0);
    TORCH_CHECK_WITH(OutOfMemoryError, code != 2, "CUDA out of memory. Tried to allocate ", bytes, " bytes");
    require(code, "no memory");
    block->poison();
    return block;
  }

  // Memory of a device that only its own stream has used serves that stream again at once. Other memory serves again
  // when all that was on its streams has run.
  static void release(void* context) {
    auto* const block = static_cast<Block*>(context);
    block->report(-1);
    std::vector<c10::Stream> users = std::move(block->users);
    block->users.clear();
    const bool at_once = users.empty();
    if (block->owner->on_device_) users.push_back(block->stream());
    if (users.empty()) block->poison();
    if (at_once && !users.empty()) enqueue(users[0], [block] { block->poison(); });
    if (at_once) return give_back(block);
    const auto last = std::shared_ptr<Block>(block, [](Block* b) {
      b->poison();
      give_back(b);
    });
    for (const c10::Stream& user : users) enqueue(user, [last] {});
  }
  static void give_back(Block* block) {
    const std::lock_guard lock(block->owner->mutex_);
    block->owner->free_.emplace(block->key, block);
  }

  const bool on_device_;
  mutable std::mutex mutex_;
  mutable std::multimap<Key, Block*> free_;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device getDevice() const override {
    int device = 0;
    cudaGetDevice(&device);
    return device_number(device);
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  void setDevice(c10::Device device) const override {
    require(cudaSetDevice(device.index()), "invalid device ordinal");
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { cudaSetDevice(device.index()); }
  c10::DeviceIndex deviceCount() const noexcept override {
    int count = 0;
    return c10::DeviceIndex(cudaGetDeviceCount(&count) == 0 ? count : 0);
  }
  c10::Stream getStream(c10::Device device) const noexcept override { return current_stream(device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_number(device.index(), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return streams().next(device.index());
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    const c10::Stream before = current_stream(stream.device());
    current_streams[std::size_t(stream.device_index())] = stream.id();
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override {
    const OnDevice on(stream.device_index());
    return has_passed(cudaStreamQuery(handle_of(stream)));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    const OnDevice on(stream.device_index());
    cudaStreamSynchronize(handle_of(stream));
    throw_if_broken(stream.device());
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag flag) const override {
    const OnDevice on(stream.device_index());
    if (!*event) cudaEventCreateWithFlags(event, flag == c10::EventFlag::BACKEND_DEFAULT ? 0 : 2);
    cudaEventRecord(*event, handle_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    const OnDevice on(stream.device_index());
    if (event) cudaStreamWaitEvent(handle_of(stream), event, 0);
  }
  bool queryEvent(void* event) const override { return !event || has_passed(cudaEventQuery(event)); }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    if (event) cudaEventDestroy(event);
  }
#if TUTTI_TORCH_AT_LEAST(2, 6)
  void* getStreamNativeHandle(const c10::Stream stream) const override { return handle_of(stream); }
  void synchronizeEvent(void* event) const override { cudaEventSynchronize(event); }
#endif
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    record_use(memory, stream);
  }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

struct DeviceGenerator final : c10::GeneratorImpl {
  explicit DeviceGenerator(c10::Device device, at::Generator drawn = at::detail::createCPUGenerator())
      : GeneratorImpl(device, c10::DispatchKeySet(c10::DispatchKey::CUDA)), drawn(std::move(drawn)) {}
  void set_current_seed(std::uint64_t seed) override { drawn.set_current_seed(seed); }
  std::uint64_t current_seed() const override { return drawn.current_seed(); }
  std::uint64_t seed() override { return drawn.seed(); }
  void set_state(const c10::TensorImpl& state) override { drawn.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return drawn.unsafeGetGeneratorImpl()->get_state(); }
#if TUTTI_TORCH_AT_LEAST(2, 2)
  void set_offset(std::uint64_t offset) override { drawn.set_offset(offset); }
  std::uint64_t get_offset() const override { return drawn.get_offset(); }
#endif
  DeviceGenerator* clone_impl() const override { return new DeviceGenerator(device(), drawn.clone()); }

  at::Generator drawn;
};

}  // namespace

c10::Stream current_stream(c10::Device device) {
  const int index = device.has_index() ? device.index() : fake_cuda_current_device();
  return stream_number(index, current_streams[std::size_t(index)]);
}

namespace {

void enqueue_by(void (*enqueue)(void*, void (*)(void*), void*), c10::Stream stream, std::function<void()> act) {
  const OnDevice on(stream.device_index());
  const int device = stream.device_index();
  auto* const guarded = new std::function<void()>([act = std::move(act), device] {
    try {
      act();
    } catch (const c10::Error& e) {
      const std::lock_guard lock(broken_mutex);
      broken[device] = e.what_without_backtrace();
    } catch (const std::exception& e) {
      const std::lock_guard lock(broken_mutex);
      broken[device] = e.what();
    }
  });
  const auto run = [](void* data) {
    const std::unique_ptr<std::function<void()>> act(static_cast<std::function<void()>*>(data));
    (*act)();
  };
  enqueue(handle_of(stream), run, guarded);
}

}  // namespace

void enqueue(c10::Stream stream, std::function<void()> act) {
  enqueue_by(fake_cuda_enqueue_late, stream, std::move(act));
}
void enqueue_waiting(c10::Stream stream, std::function<void()> act) {
  enqueue_by(fake_cuda_enqueue_waiting, stream, std::move(act));
}

void await(c10::Stream stream) {
  const OnDevice on(stream.device_index());
  fake_cuda_await(handle_of(stream));
}

void order(c10::Stream first, c10::Stream second) {
  const Guard guard;
  void* event = nullptr;
  guard.record(&event, first, first.device_index(), c10::EventFlag::PYTORCH_DEFAULT);
  guard.block(event, second);
  guard.destroyEvent(event, first.device_index());
}

void throw_if_broken(c10::Device device) {
  const std::lock_guard lock(broken_mutex);
  const std::string& why = broken[device.index()];
  TORCH_CHECK(!fake_cuda_is_lost(device.index()), "CUDA error: unspecified launch failure");
  TORCH_CHECK(why.empty(), "CUDA error: device-side assert triggered on ", device, ": ", why);
}

void record_use(const c10::DataPtr& memory, c10::Stream stream) { Blocks::record(memory, stream); }

c10::Allocator* device_allocator() {
  static Blocks* const blocks = new Blocks(true);
  return blocks;
}
c10::Allocator* pinned_allocator() {
  static Blocks* const blocks = new Blocks(false);
  return blocks;
}

at::Generator& drawn_from(const at::Generator& of_device) {
  TORCH_CHECK(of_device.device().is_cuda(), "expected a generator of a CUDA device, got one of ", of_device.device());
  return static_cast<DeviceGenerator*>(of_device.unsafeGetGeneratorImpl())->drawn;
}
const at::Generator& default_generator(c10::DeviceIndex device) {
  static const auto* const all = [] {
    auto* const made = new std::vector<at::Generator>;
    for (int i = 0; i < kDevices; ++i) made->push_back(at::make_generator<DeviceGenerator>(device_number(i)));
    return made;
  }();
  return all->at(std::size_t(device < 0 ? fake_cuda_current_device() : device));
}

}  // namespace tutti::fakes

namespace at {
namespace {

// LibTorch asks the registry for this name.
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  int getNumGPUs() const override { return tutti::fakes::Guard().deviceCount(); }
  Device getDeviceFromPtr(void* memory) const override {
    const int device = fake_cuda_device_of(memory);
    TORCH_CHECK(device >= 0, "the pointer is not to memory of a device");
    return Device(DeviceType::CUDA, DeviceIndex(device));
  }
  Allocator* getPinnedMemoryAllocator() const override { return tutti::fakes::pinned_allocator(); }
  Allocator* getCUDADeviceAllocator() const override { return tutti::fakes::device_allocator(); }
#if TUTTI_TORCH_AT_LEAST(2, 6)
  using Index = DeviceIndex;
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  DeviceIndex deviceCount() const override { return DeviceIndex(getNumGPUs()); }
  bool isPinnedPtr(const void* memory) const override { return fake_cuda_is_pinned(memory) != 0; }
  const Generator& getDefaultGenerator(DeviceIndex device) const override {
    return tutti::fakes::default_generator(device);
  }
#else
  using Index = std::int64_t;
  void initCUDA() const override {}
  bool isPinnedPtr(void* memory) const override { return fake_cuda_is_pinned(memory) != 0; }
  const Generator& getDefaultCUDAGenerator(DeviceIndex device) const override {
    return tutti::fakes::default_generator(device);
  }
#endif
  Index current_device() const override { return Index(fake_cuda_current_device()); }
  bool hasPrimaryContext(Index) const override { return true; }
  void deviceSynchronize(Index device) const override {
    const tutti::fakes::OnDevice on(device < 0 ? fake_cuda_current_device() : int(device));
    cudaDeviceSynchronize();
    tutti::fakes::throw_if_broken(tutti::fakes::Guard().getDevice());
  }
};
REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace
}  // namespace at
