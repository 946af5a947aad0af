// LibTorch makes and records the events, because its streams have no public handle before 2.6. The CUDA runtime says
// how far two are apart, because LibTorch does so only since 2.4.
//
// cudaEventElapsedTime() returns a float. Over a second that is exact to a tenth of a microsecond, over a day to some
// milliseconds. So the moment that host and GPU have in common moves along: a mark more than a second behind it takes
// its place.
#include "tutti/tensor/device_clock.h"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <thread>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/base/mutex.h"
#include "tutti/comm/cuda/runtime.h"

namespace tutti {
namespace {

constexpr Duration kBeginPatience = std::chrono::seconds(1);
constexpr Duration kReach = std::chrono::seconds(1);

// Events of one device, made once and used again.
class Events {
 public:
  explicit Events(c10::Device device) : device_(device), guard_(c10::DeviceType::CUDA) {}
  ~Events() {
    for (void* const event : free_) guard_.destroyEvent(event, device_.index());
  }
  Events(const Events&) = delete;

  // Null on a broken device: the next operator there reports it.
  void* record(const c10::Stream& stream) {
    void* event = take();
    try {
      guard_.record(&event, stream, device_.index(), c10::EventFlag::BACKEND_DEFAULT);
    } catch (const std::exception&) {
      if (event) give_back(event);
      return nullptr;
    }
    return event;
  }
  bool has_passed(void* event) const {
    try {
      return guard_.queryEvent(event);
    } catch (const std::exception&) {  // as above: nothing is to be waited for
      return true;
    }
  }
  void give_back(void* event) {
    const MutexLock lock(mutex_);
    free_.push_back(event);
  }
  c10::Stream current_stream() const { return guard_.getStream(device_); }
  c10::Stream stream_of_pool() const { return guard_.getStreamFromGlobalPool(device_); }

 private:
  void* take() {
    const MutexLock lock(mutex_);
    if (free_.empty()) return nullptr;
    void* const event = free_.back();
    free_.pop_back();
    return event;
  }

  const c10::Device device_;
  const c10::impl::VirtualGuardImpl guard_;
  Mutex mutex_;
  std::vector<void*> free_ TUTTI_GUARDED_BY(mutex_);
};

class Mark final : public StreamMark, public std::enable_shared_from_this<Mark> {
 public:
  Mark(std::shared_ptr<Events> events, void* event) : events_(std::move(events)), event_(event) {}
  ~Mark() override { events_->give_back(event_); }
  bool has_passed() override { return events_->has_passed(event_); }
  void* event() const { return event_; }

 private:
  const std::shared_ptr<Events> events_;
  void* const event_;
};

class DeviceClock final : public StreamClock {
 public:
  DeviceClock(const cuda::Runtime& runtime, c10::Device device)
      : runtime_(runtime), events_(std::make_shared<Events>(device)) {}

  // Finds a moment that host and GPU have in common. Without one host_time() has no answer.
  void begin() {
    const Clock::time_point before = now();
    const StreamMarkPtr mark = put(events_->stream_of_pool());
    if (!mark) return;
    for (const auto deadline = Deadline::after(kBeginPatience); !mark->has_passed(); std::this_thread::yield())
      if (deadline.expired()) return;
    const MutexLock lock(mutex_);
    common_ = mark;
    common_time_ = before + (now() - before) / 2;
  }

  StreamMarkPtr mark() override { return put(events_->current_stream()); }

  std::optional<Duration> between(StreamMark& from, StreamMark& to) override {
    float milliseconds = 0;
    const auto event = [](StreamMark& mark) { return static_cast<Mark&>(mark).event(); };
    if (runtime_.cudaEventElapsedTime(&milliseconds, event(from), event(to)) == 0)
      return from_seconds(double(milliseconds) / 1e3);
    runtime_.cudaGetLastError();
    return std::nullopt;
  }

  std::optional<Clock::time_point> host_time(StreamMark& mark) override {
    const MutexLock lock(mutex_);
    if (!common_) return std::nullopt;
    const auto since = between(*common_, mark);
    if (!since || *since < Duration(0)) {  // the common moment has moved past it
      const auto until = between(mark, *common_);
      return until ? std::optional(common_time_ - *until) : std::nullopt;
    }
    const Clock::time_point time = common_time_ + *since;
    if (*since > kReach) {
      common_ = static_cast<Mark&>(mark).shared_from_this();
      common_time_ = time;
    }
    return time;
  }

 private:
  StreamMarkPtr put(const c10::Stream& stream) {
    void* const event = events_->record(stream);
    return event ? std::make_shared<Mark>(events_, event) : nullptr;
  }

  const cuda::Runtime& runtime_;
  const std::shared_ptr<Events> events_;
  Mutex mutex_;
  StreamMarkPtr common_ TUTTI_GUARDED_BY(mutex_);
  Clock::time_point common_time_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace

std::shared_ptr<StreamClock> device_clock(c10::Device device) {
  if (!device.is_cuda()) return nullptr;
  const auto runtime = cuda::runtime();
  if (!runtime.ok()) return nullptr;
  if (!device.has_index()) device = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getDevice();
  auto clock = std::make_shared<DeviceClock>(**runtime, device);
  clock->begin();
  return clock;
}

}  // namespace tutti
