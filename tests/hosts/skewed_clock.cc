// To be preloaded: a process whose wall clock is TUTTI_TEST_SKEW seconds ahead of the machine's. (A time namespace
// shifts only the monotonic clock.)
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

#include <cstdlib>

namespace {

long skew() {
  static const long seconds = [] {
    const char* const text = std::getenv("TUTTI_TEST_SKEW");
    return text ? std::atol(text) : 0;
  }();
  return seconds;
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* into) noexcept {
  static const auto real = reinterpret_cast<int (*)(clockid_t, timespec*)>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = real(clock, into);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) into->tv_sec += skew();
  return result;
}

extern "C" int gettimeofday(timeval* __restrict into, void* __restrict) noexcept {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  *into = {time.tv_sec, time.tv_nsec / 1000};
  return 0;
}

extern "C" time_t time(time_t* into) noexcept {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  if (into) *into = time.tv_sec;
  return time.tv_sec;
}
