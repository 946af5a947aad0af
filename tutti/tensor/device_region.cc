// Spans wait here until their events have passed: a queue for each GPU, in the order of their ends. As the logs of
// region.cc it belongs to the process.
#include "tutti/tensor/device_region.h"

#include <deque>
#include <map>
#include <memory>
#include <thread>

#include "tutti/base/deadline.h"
#include "tutti/base/mutex.h"
#include "tutti/tensor/device_clock.h"

namespace tutti {
namespace {

constexpr Duration kDrainPatience = std::chrono::seconds(10);

struct Span {
  const char* name;
  std::string detail;
  StreamMarkPtr begin, end;
};

class Lane {
 public:
  explicit Lane(c10::Device device) : name_(device.str()), clock_(device_clock(device)) {}

  StreamMarkPtr mark() const { return clock_ ? clock_->mark() : nullptr; }
  void add(Span span) {
    const MutexLock lock(mutex_);
    spans_.push_back(std::move(span));
    record_passed();
  }
  void drain(const Deadline& deadline) {
    for (;; std::this_thread::yield()) {
      const MutexLock lock(mutex_);
      record_passed();
      if (deadline.expired()) spans_.clear();
      if (spans_.empty()) return;
    }
  }

 private:
  void record_passed() TUTTI_REQUIRES(mutex_) {
    for (; !spans_.empty() && spans_.front().end->has_passed(); spans_.pop_front()) {
      Span& span = spans_.front();
      const auto begin = clock_->host_time(*span.begin), end = clock_->host_time(*span.end);
      if (begin && end) record_span(name_, span.name, std::move(span.detail), *begin, *end);
    }
  }

  const std::string name_;
  const std::shared_ptr<StreamClock> clock_;
  Mutex mutex_;
  std::deque<Span> spans_ TUTTI_GUARDED_BY(mutex_);
};

class Lanes {
 public:
  Lane& of(c10::Device device) {
    const MutexLock lock(mutex_);
    auto& lane = lanes_[device.index()];
    if (!lane) lane = std::make_unique<Lane>(device);
    return *lane;
  }
  void drain() {
    const auto deadline = Deadline::after(kDrainPatience);
    const MutexLock lock(mutex_);
    for (const auto& [device, lane] : lanes_) lane->drain(deadline);
  }

 private:
  Mutex mutex_;
  std::map<c10::DeviceIndex, std::unique_ptr<Lane>> lanes_ TUTTI_GUARDED_BY(mutex_);
};

// Never destroyed: threads may end after main() has, and CUDA before.
Lanes& lanes() {
  static Lanes* const all = [] {
    set_trace_drain([] { lanes().drain(); });
    return new Lanes;
  }();
  return *all;
}

}  // namespace

void DeviceRegion::open(const char* name, c10::Device device, std::string detail) {
  name_ = name;
  device_ = device;
  detail_ = std::move(detail);
  if (device.is_cuda()) begin_ = lanes().of(device).mark();
  region_.emplace(name, [&] { return detail_; });
}

void DeviceRegion::close() {
  region_.reset();
  if (!begin_) return;
  Lane& lane = lanes().of(device_);
  if (StreamMarkPtr end = lane.mark()) lane.add({name_, std::move(detail_), std::move(begin_), std::move(end)});
}

}  // namespace tutti
