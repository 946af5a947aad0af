#pragma once
// Who of two stores serves: the rules by which a primary and its follower judge each other's silence. Pure: times come
// from outside. docs/store.md proves that the two never both go on. Private to store/.
//
// Each side sends *beats* with a stamp of its own clock, and echoes the last stamp of the other. So each knows the
// latest moment of its own at which the other is known to have still been there and in touch (`echoed`), however long
// anything was under way.
#include <optional>

#include "tutti/base/clock.h"

namespace tutti {

inline constexpr Duration kBeatEvery = std::chrono::milliseconds(250);
// Until so long after the last echo a closed connection proves that the other has ended; from so long after the last
// beat that was heard on, somebody else may decide that this side goes on. One number for both: that is the proof.
inline constexpr Duration kInTouch = std::chrono::milliseconds(2500);

struct Beat {
  std::uint64_t count = 0;  // of entries: the primary has sent, the follower has carried out
  std::int64_t stamp = 0;   // nanoseconds of the sender's clock
  std::int64_t echo = 0;    // the last stamp that the sender had heard; 0: none
};

class Touch {
 public:
  Beat next_beat(std::uint64_t count, Clock::time_point moment) const;
  void heard(const Beat& beat, Clock::time_point moment);
  // Anything else came from the other.
  void noticed(Clock::time_point moment) { heard_at_ = moment; }

  // Whether a connection that closes now was closed by the other's end.
  bool closing_proves_death(Clock::time_point moment) const;
  // How long nothing was heard, if that is too short for a decision from outside.
  std::optional<Duration> heard_too_lately(Clock::time_point moment) const;

 private:
  static std::int64_t stamp_of(Clock::time_point moment);

  std::int64_t last_stamp_ = 0;  // of the other
  std::int64_t echoed_ = 0;      // of ours
  Clock::time_point heard_at_{};
};

}  // namespace tutti
