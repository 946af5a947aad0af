// A double of the CUDA runtime for machines without a GPU: as much of it as tutti uses, with the properties that code
// for GPUs gets wrong.
//
//   Device memory is not the host's: device pointers lie in a range that nobody may touch, so any access from the host,
//   a memcpy that should have been a cudaMemcpy, ends the process. The bytes lie elsewhere (fake_cuda_bytes()).
//   Streams are late: each is a thread with a queue, and it runs its queue only up to what somebody waits for or asks
//   about. So code that reads a result without waiting for the stream reads what was there before, every time. If a
//   stream is made to wait for another, the other runs first. So work on a side stream that forgot to wait for its
//   inputs does not find them. Kernels of NCCL and host functions run without being awaited, because other ranks depend
//   on them.
//   Calls that make the host wait are counted (fake_cuda_host_waits()).
//   Asynchronous copies want pinned memory on the host's side; others are refused (CUDA would make them synchronous).
//   Memory is shared with other processes by IPC handles (memory.h).
//
// FAKE_CUDA_DEVICES: how many GPUs there are (8); FAKE_CUDA_ERROR: what cudaGetDeviceCount returns, such as 35;
// FAKE_CUDA_IPC_GET, FAKE_CUDA_IPC_OPEN: what cudaIpcGetMemHandle, cudaIpcOpenMemHandle return;
// FAKE_CUDA_DIES_READING: the process is killed when a copy reads memory of another process; FAKE_CUDA_READS_LATE: so
// many milliseconds pass before it reads;
// FAKE_CUDA_NO_REGISTER: set if the host's memory cannot be pinned, FAKE_CUDA_NO_PINNED: nor pinned memory allocated;
// FAKE_CUDA_UNAVAILABLE: set if other processes have the GPUs in exclusive mode; FAKE_CUDA_MEMORY: bytes of each GPU.
#include "tests/fakes/cuda/cudart.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/cuda/memory.h"
#include "tutti/comm/cuda/ipc_functions.h"

namespace {

constexpr int kInvalidValue = 1, kOutOfMemory = 2, kUnavailable = 46, kInvalidDevice = 101, kInvalidContext = 201,
              kInvalidHandle = 400, kNotReady = 600, kLaunchFailure = 719;

thread_local int current_device = 0;
thread_local int last_error = 0;

int fail(int code) {
  last_error = code;
  return code;
}

// Ranges of pinned memory.
class PinnedRanges {
 public:
  void add(const void* p, std::size_t bytes) {
    std::lock_guard lock(mutex_);
    ranges_[static_cast<const std::byte*>(p)] = bytes;
  }
  bool remove(const void* p) {
    std::lock_guard lock(mutex_);
    return ranges_.erase(static_cast<const std::byte*>(p)) > 0;
  }
  bool holds(const void* p, std::size_t bytes) {
    std::lock_guard lock(mutex_);
    auto after = ranges_.upper_bound(static_cast<const std::byte*>(p));
    if (after == ranges_.begin()) return false;
    --after;
    return static_cast<const std::byte*>(p) + bytes <= after->first + after->second;
  }

 private:
  std::mutex mutex_;
  std::map<const std::byte*, std::size_t> ranges_;
};

PinnedRanges& pinned() {
  static PinnedRanges* const all = new PinnedRanges;
  return *all;
}

// Acts are numbered from 1 in the order of their calls. The thread runs those up to `demanded_`. One mutex guards all
// streams, since a stream may wait for another.
class Stream {
 public:
  static std::shared_ptr<Stream> start() {
    auto stream = std::make_shared<Stream>();
    std::thread([stream] { stream->run(); }).detach();
    return stream;
  }
  std::uint64_t push(std::function<void()> act) {
    const std::lock_guard lock(mutex());
    queue_.push_back(std::move(act));
    return ++pushed_;
  }
  // Lets the stream run its first `number` acts. Returns whether it has done so already.
  bool demand(std::uint64_t number) {
    const std::lock_guard lock(mutex());
    demand_locked(number);
    return done_ >= number;
  }
  bool demand_all() { return demand(pushed()); }
  // With `or_stuck` also returns if the stream waits for something that is no stream: another rank, a test.
  void wait(std::uint64_t number, bool or_stuck = false) {
    std::unique_lock lock(mutex());
    demand_locked(number);
    changed().wait(lock, [&] { return done_ >= number || (or_stuck && is_stuck()); });
  }
  void wait_for_all() { wait(pushed()); }
  // For acts: waits for another stream, and runs what may wait for anything.
  void wait_for(Stream& other, std::uint64_t number) {
    std::unique_lock lock(mutex());
    awaited_ = &other, awaited_number_ = number;
    other.demand_locked(number);
    changed().wait(lock, [&] { return other.done_ >= number; });
    awaited_ = nullptr;
  }
  void run_what_may_wait(const std::function<void()>& act) {
    may_wait(true);
    act();
    may_wait(false);
  }
  void end() {  // once its queue is empty
    const std::lock_guard lock(mutex());
    ending_ = true;
    demand_locked(pushed_);
  }

 private:
  static std::mutex& mutex() {
    static std::mutex* const all = new std::mutex;
    return *all;
  }
  static std::condition_variable& changed() {
    static std::condition_variable* const all = new std::condition_variable;
    return *all;
  }
  void demand_locked(std::uint64_t number) {
    demanded_ = std::max(demanded_, number);
    changed().notify_all();
  }
  void may_wait(bool value) {
    const std::lock_guard lock(mutex());
    may_wait_ = value;
    changed().notify_all();
  }
  // What has been reached, though this thread has not woken up since, is not waited for.
  bool is_stuck() const { return may_wait_ || (awaited_ && awaited_->done_ < awaited_number_ && awaited_->is_stuck()); }
  std::uint64_t pushed() {
    const std::lock_guard lock(mutex());
    return pushed_;
  }
  void run() {
    std::unique_lock lock(mutex());
    for (;;) {
      changed().wait(lock, [&] { return done_ < demanded_ || ending_; });
      if (queue_.empty()) return;
      auto act = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      act();
      act = nullptr;
      lock.lock();
      ++done_;
      changed().notify_all();
    }
  }
  std::deque<std::function<void()>> queue_;
  std::uint64_t pushed_ = 0, done_ = 0, demanded_ = 0;
  bool ending_ = false, may_wait_ = false;
  const Stream* awaited_ = nullptr;
  std::uint64_t awaited_number_ = 0;
};

using StreamHandle = std::shared_ptr<Stream>;

// The act of a stream that was the latest one when the event was recorded.
struct Event {
  StreamHandle stream;
  std::uint64_t number = 0;
  bool has_time = false;
  std::shared_ptr<std::atomic<std::int64_t>> time{};  // nanoseconds when it was reached
};

std::int64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

constexpr int kMaxDevices = 64;

// The handle 0 is the default stream of the current device.
StreamHandle stream_of(void* handle) {
  if (handle) return *static_cast<StreamHandle*>(handle);
  static std::mutex mutex;
  static StreamHandle* const default_streams = new StreamHandle[kMaxDevices];
  std::lock_guard lock(mutex);
  StreamHandle& stream = default_streams[current_device];
  if (!stream) stream = Stream::start();
  return stream;
}
Event& event_of(void* handle) { return *static_cast<Event*>(handle); }

class StreamsMade {
 public:
  void add(int device, const StreamHandle& stream) {
    std::lock_guard lock(mutex_);
    streams_[device].push_back(stream);
  }
  std::vector<StreamHandle> of(int device) {
    std::lock_guard lock(mutex_);
    std::vector<StreamHandle> alive;
    for (const auto& stream : streams_[device])
      if (StreamHandle held = stream.lock()) alive.push_back(std::move(held));
    return alive;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<std::weak_ptr<Stream>>> streams_;
};

StreamsMade& streams_made() {
  static StreamsMade* const all = new StreamsMade;
  return *all;
}

std::atomic<std::uint64_t> host_waits[kMaxDevices], unpinned_copies[kMaxDevices];

void count_host_wait() { ++host_waits[current_device]; }

// Bytes that copies have written to each device.
class Copied {
 public:
  void add(int device, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    bytes_[device] += bytes;
    more_.notify_all();
  }
  std::uint64_t to(int device) {
    const std::lock_guard lock(mutex_);
    return bytes_[device];
  }
  bool await(int device, std::uint64_t bytes, std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return more_.wait_for(lock, limit, [&] { return bytes_[device] >= bytes; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable more_;
  std::uint64_t bytes_[kMaxDevices] = {};
};

Copied& copied() {
  static Copied* const all = new Copied;
  return *all;
}

std::atomic<bool> lost[kMaxDevices];

// What every use of the current device returns: 0 if it works.
int state_of_device() {
  if (lost[current_device]) return kLaunchFailure;
  return std::getenv("FAKE_CUDA_UNAVAILABLE") ? kUnavailable : 0;
}

int number_from(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}
using tutti::fakes::IpcHandle;
using tutti::fakes::memory;

bool may_be_copied(const void* p, std::size_t bytes) {
  return memory().owns(p) ? memory().is_valid(p, bytes) : pinned().holds(p, bytes);
}

int devices() { return std::min(number_from("FAKE_CUDA_DEVICES", 8), kMaxDevices); }

}  // namespace

extern "C" {

void* fake_cuda_bytes(const void* p) { return memory().owns(p) ? memory().bytes_of(p) : const_cast<void*>(p); }

void fake_cuda_enqueue(void* stream, void (*act)(void*), void* data) {
  const StreamHandle on = stream_of(stream);
  on->demand(on->push([=, raw = on.get()] { raw->run_what_may_wait([=] { act(data); }); }));
}
void fake_cuda_enqueue_late(void* stream, void (*act)(void*), void* data) {
  stream_of(stream)->push([=] { act(data); });
}
void fake_cuda_enqueue_waiting(void* stream, void (*act)(void*), void* data) {
  const StreamHandle on = stream_of(stream);
  on->push([=, raw = on.get()] { raw->run_what_may_wait([=] { act(data); }); });
}
void fake_cuda_await(void* stream) { stream_of(stream)->wait_for_all(); }
std::uint64_t fake_cuda_host_waits(int device) { return host_waits[device]; }
std::uint64_t fake_cuda_unpinned_copies(int device) { return unpinned_copies[device]; }
void fake_cuda_count_unpinned_copy(int device) { ++unpinned_copies[device]; }
std::uint64_t fake_cuda_copied_to(int device) { return copied().to(device); }
int fake_cuda_await_copied_to(int device, std::uint64_t bytes, int milliseconds) {
  return copied().await(device, bytes, std::chrono::milliseconds(milliseconds));
}
int fake_cuda_device_of(const void* p) { return memory().device_of(p, 1); }
int fake_cuda_is_pinned(const void* p) { return pinned().holds(p, 1); }
void fake_cuda_lose(int device) { lost[device] = true; }
int fake_cuda_is_lost(int device) { return lost[device]; }
int fake_cuda_current_device() { return current_device; }

int cudaGetDeviceCount(int* count) {
  *count = devices();
  if (const int error = number_from("FAKE_CUDA_ERROR", 0)) return fail(error);
  return *count == 0 ? fail(100) : 0;
}
int cudaGetDevice(int* device) {
  *device = current_device;
  return 0;
}
int cudaSetDevice(int device) {
  if (device < 0 || device >= devices()) return fail(kInvalidDevice);
  current_device = device;
  return 0;
}
int cudaDeviceGetPCIBusId(char* text, int size, int device) {
  if (device < 0 || device >= devices()) return fail(kInvalidDevice);
  std::snprintf(text, std::size_t(size), "0000:%02x:00.0", device + 1);
  return 0;
}
int cudaMalloc(void** at, std::size_t bytes) {
  if (const int broken = state_of_device()) return fail(broken);
  *at = memory().allocate(bytes, current_device);
  return *at ? 0 : fail(kOutOfMemory);
}
int cudaFree(void* p) { return !p || memory().release(p) ? 0 : fail(kInvalidValue); }
int cudaHostAlloc(void** at, std::size_t bytes, unsigned) {
  if (const int broken = state_of_device()) return fail(broken);
  if (std::getenv("FAKE_CUDA_NO_PINNED")) return fail(kOutOfMemory);
  *at = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!*at) return fail(kOutOfMemory);
  pinned().add(*at, bytes);
  return 0;
}
int cudaFreeHost(void* p) {
  if (!pinned().remove(p)) return fail(kInvalidValue);
  std::free(p);
  return 0;
}
int cudaHostRegister(void* p, std::size_t bytes, unsigned) {
  if (std::getenv("FAKE_CUDA_NO_REGISTER")) return fail(kOutOfMemory);
  pinned().add(p, bytes);
  return 0;
}
int cudaHostUnregister(void* p) { return pinned().remove(p) ? 0 : fail(kInvalidValue); }

int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int, void* stream) {
  if (bytes == 0) return 0;
  if (const int broken = state_of_device()) return fail(broken);
  if (!may_be_copied(to, bytes) || !may_be_copied(from, bytes)) return fail(kInvalidValue);
  stream_of(stream)->push([=] {
    for (const void* p : {static_cast<const void*>(to), from}) memory().require_alive(p);
    if (memory().is_of_a_peer(from)) {
      if (std::getenv("FAKE_CUDA_DIES_READING")) ::kill(::getpid(), SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(number_from("FAKE_CUDA_READS_LATE", 0)));
    }
    std::memcpy(fake_cuda_bytes(to), fake_cuda_bytes(from), bytes);
    if (const int device = memory().device_of(to, bytes); device >= 0) copied().add(device, bytes);
  });
  return 0;
}
// ---- IPC ----

// By the type with which Tutti calls them, which UBSan compares.
int cudaIpcGetMemHandle(tutti::cuda::IpcHandle* handle, void* p) {
  if (const int error = number_from("FAKE_CUDA_IPC_GET", 0)) return fail(error);
  IpcHandle made;
  if (!memory().make_handle(p, made)) return fail(kInvalidValue);
  *handle = std::bit_cast<tutti::cuda::IpcHandle>(made);
  return 0;
}
int cudaIpcOpenMemHandle(void** p, tutti::cuda::IpcHandle given, unsigned flags) {
  const auto handle = std::bit_cast<IpcHandle>(given);
  if (const int error = number_from("FAKE_CUDA_IPC_OPEN", 0)) return fail(error);
  if (flags != 1) return fail(kInvalidValue);
  if (tutti::fakes::is_of_this_process(handle)) return fail(kInvalidContext);
  *p = memory().open(handle);
  return *p ? 0 : fail(kInvalidValue);
}
int cudaIpcCloseMemHandle(void* p) { return memory().close(p) ? 0 : fail(kInvalidValue); }
int fake_cuda_open_handles() { return memory().open_handles(); }

// The driver's functions, as the runtime finds them.
static int fake_get_address_range(unsigned long long* base, std::size_t* bytes, unsigned long long p) {
  const auto block = memory().block_of(reinterpret_cast<const void*>(p));
  if (!block) return kInvalidValue;
  *base = reinterpret_cast<unsigned long long>(block->begin), *bytes = block->bytes;
  return 0;
}
static int fake_pointer_attribute(void* value, int attribute, unsigned long long p) {
  constexpr int kBufferId = 7;
  const auto block = memory().block_of(reinterpret_cast<const void*>(p));
  if (!block || attribute != kBufferId) return kInvalidValue;
  std::memcpy(value, &block->id, sizeof block->id);
  return 0;
}
int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long, int* found) {
  const std::string wanted = name;
  *function = wanted == "cuMemGetAddressRange"    ? reinterpret_cast<void*>(&fake_get_address_range)
              : wanted == "cuPointerGetAttribute" ? reinterpret_cast<void*>(&fake_pointer_attribute)
                                                  : nullptr;
  if (found) *found = *function ? 0 : 1;
  return 0;
}

// From and to any host memory; behind what stands on the default stream.
int cudaMemcpy(void* to, const void* from, std::size_t bytes, int) {
  for (const void* p : {static_cast<const void*>(to), from})
    if (bytes > 0 && memory().owns(p) && !memory().is_valid(p, bytes)) return fail(kInvalidValue);
  count_host_wait();
  stream_of(nullptr)->wait_for_all();
  if (bytes > 0) std::memcpy(fake_cuda_bytes(to), fake_cuda_bytes(from), bytes);
  return 0;
}
int cudaLaunchHostFunc(void* stream, void (*act)(void*), void* data) {
  fake_cuda_enqueue(stream, act, data);
  return 0;
}

int cudaStreamCreateWithFlags(void** stream, unsigned) {
  if (const int broken = state_of_device()) return fail(broken);
  auto* const handle = new StreamHandle(Stream::start());
  streams_made().add(current_device, *handle);
  *stream = handle;
  return 0;
}
int cudaDeviceSynchronize() {
  count_host_wait();
  stream_of(nullptr)->wait_for_all();
  for (const StreamHandle& stream : streams_made().of(current_device)) stream->wait_for_all();
  return 0;
}
int cudaStreamDestroy(void* stream) {
  auto* const handle = static_cast<StreamHandle*>(stream);
  (*handle)->end();
  delete handle;
  return 0;
}
int cudaStreamQuery(void* stream) {
  if (const int broken = state_of_device()) return fail(broken);
  return stream_of(stream)->demand_all() ? 0 : fail(kNotReady);
}
int cudaStreamSynchronize(void* stream) {
  if (const int broken = state_of_device()) return fail(broken);
  count_host_wait();
  stream_of(stream)->wait_for_all();
  return 0;
}
int cudaStreamWaitEvent(void* stream, void* event, unsigned) {
  const Event awaited = event_of(event);
  if (!awaited.stream) return 0;
  // The awaited stream runs now, before what it forgot to wait for.
  awaited.stream->wait(awaited.number, true);
  const StreamHandle on = stream_of(stream);
  on->push([=, raw = on.get()] { raw->wait_for(*awaited.stream, awaited.number); });
  return 0;
}
int cudaEventCreateWithFlags(void** event, unsigned flags) {
  if (const int broken = state_of_device()) return fail(broken);
  *event = new Event{.has_time = (flags & 2) == 0};  // cudaEventDisableTiming
  return 0;
}
int cudaEventDestroy(void* event) {
  delete &event_of(event);
  return 0;
}
int cudaEventRecord(void* event, void* stream) {
  if (const int broken = state_of_device()) return fail(broken);
  StreamHandle on = stream_of(stream);
  Event& e = event_of(event);
  e.time = std::make_shared<std::atomic<std::int64_t>>(0);
  e.number = on->push([time = e.time] { *time = nanoseconds(); });
  e.stream = std::move(on);
  return 0;
}
// Times are those of the host's clock, when the stream came to the event.
int cudaEventElapsedTime(float* milliseconds, void* from, void* to) {
  const Event &first = event_of(from), &second = event_of(to);
  if (!first.has_time || !second.has_time || !first.time || !second.time) return fail(kInvalidHandle);
  if (*first.time == 0 || *second.time == 0) return fail(kNotReady);
  *milliseconds = float(double(*second.time - *first.time) / 1e6);
  return 0;
}
int cudaEventQuery(void* event) {
  if (const int broken = state_of_device()) return fail(broken);
  const Event& e = event_of(event);
  return !e.stream || e.stream->demand(e.number) ? 0 : fail(kNotReady);
}
int cudaEventSynchronize(void* event) {
  count_host_wait();
  if (const Event e = event_of(event); e.stream) e.stream->wait(e.number);
  return 0;
}

const char* cudaGetErrorString(int error) {
  switch (error) {
    case kInvalidValue:
      return "invalid argument";
    case kOutOfMemory:
      return "out of memory";
    case kUnavailable:
      return "CUDA-capable device(s) is/are busy or unavailable";
    case kLaunchFailure:
      return "unspecified launch failure";
    case kInvalidDevice:
      return "invalid device ordinal";
    case kInvalidContext:
      return "invalid device context";
    default:
      return "an error of the double";
  }
}
int cudaGetLastError() {
  const int error = last_error;
  last_error = 0;
  return error;
}
}
