#include "tutti/store/server/replication.h"

#include <algorithm>

namespace tutti {

std::int64_t Touch::stamp_of(Clock::time_point moment) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(moment.time_since_epoch()).count();
}

Beat Touch::next_beat(std::uint64_t count, Clock::time_point moment) const {
  return {.count = count, .stamp = stamp_of(moment), .echo = last_stamp_};
}

void Touch::heard(const Beat& beat, Clock::time_point moment) {
  last_stamp_ = beat.stamp;
  echoed_ = std::max(echoed_, std::min(beat.echo, stamp_of(moment)));
  heard_at_ = moment;
}

bool Touch::closing_proves_death(Clock::time_point moment) const {
  return echoed_ != 0 && stamp_of(moment) - echoed_ < Duration(kInTouch).count();
}

std::optional<Duration> Touch::heard_too_lately(Clock::time_point moment) const {
  const Duration silent = moment - heard_at_;
  return silent < kInTouch ? std::optional(silent) : std::nullopt;
}

}  // namespace tutti
