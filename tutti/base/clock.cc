#include "tutti/base/clock.h"

#include <cstdio>
#include <ctime>

namespace tutti {

std::string wall_clock_text() {
  timespec at{};
  clock_gettime(CLOCK_REALTIME, &at);
  tm parts{};
  localtime_r(&at.tv_sec, &parts);
  char text[64];
  const size_t used = std::strftime(text, sizeof text, "%F %T", &parts);
  std::snprintf(text + used, sizeof text - used, ".%03ld", at.tv_nsec / 1000000);
  return text;
}

}  // namespace tutti
