// Two readings of both clocks, one at the start and one when a time is asked for, give the rate of the time stamp: no
// calibration that would take time, and the longer the job ran the better it is.
#include "tutti/trace/flight/ring.h"

#include <fstream>
#include <string>

namespace tutti {
namespace {

std::int64_t read_clock(clockid_t id) {
  timespec at{};
  ::clock_gettime(id, &at);
  return std::int64_t(at.tv_sec) * 1000000000 + at.tv_nsec;
}

// The kernel watches the time stamps of all cores, and takes another clock if they do not agree.
bool kernel_trusts_time_stamps() {
#if defined(__x86_64__)
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  return file >> name && name == "tsc";
#else
  return false;
#endif
}

}  // namespace

FlightClock::FlightClock()
    : stamps_(kernel_trusts_time_stamps()), first_ticks_(ticks()), first_ns_(read_clock(CLOCK_MONOTONIC)) {}

std::uint64_t FlightClock::coarse() { return std::uint64_t(read_clock(CLOCK_MONOTONIC_COARSE)); }

FlightClock::Scale FlightClock::scale() const {
  Scale scale;
  scale.now_ticks_ = ticks();
  scale.now_ns_ = read_clock(CLOCK_MONOTONIC);
  if (stamps_ && scale.now_ticks_ > first_ticks_)
    scale.ns_per_tick_ = double(scale.now_ns_ - first_ns_) / double(scale.now_ticks_ - first_ticks_);
  return scale;
}

}  // namespace tutti
