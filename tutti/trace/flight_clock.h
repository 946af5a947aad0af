#pragma once
// The clock of the flight recorder: a read that costs little, and is made into a time only when somebody asks.
#include <cstdint>
#include <ctime>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace tutti {

class FlightClock {
 public:
  FlightClock();

  // The processor's time stamp where the kernel trusts it (clock source tsc), else CLOCK_MONOTONIC_COARSE, which moves
  // every few milliseconds. Never 0.
  std::uint64_t ticks() const {
#if defined(__x86_64__)
    if (stamps_) return __rdtsc();
#endif
    return coarse();
  }
  bool is_exact() const { return stamps_; }

  // What ticks mean, as of the moment in which it was made: nanoseconds of CLOCK_MONOTONIC.
  class Scale {
   public:
    std::int64_t monotonic(std::uint64_t ticks) const {
      return now_ns_ - std::int64_t(double(std::int64_t(now_ticks_ - ticks)) * ns_per_tick_);
    }
    std::int64_t now() const { return now_ns_; }

   private:
    friend class FlightClock;
    std::uint64_t now_ticks_ = 0;
    std::int64_t now_ns_ = 0;
    double ns_per_tick_ = 1;
  };
  Scale scale() const;

 private:
  static std::uint64_t coarse();

  bool stamps_ = false;
  std::uint64_t first_ticks_ = 0;
  std::int64_t first_ns_ = 0;
};

}  // namespace tutti
