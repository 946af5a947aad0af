#pragma once
// The end of a wait, together with its start, so that an error can say "after 12.4 s of 30 s". A value: pass it by
// value to all calls that share one limit.
#include <algorithm>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"

namespace tutti {

class Deadline {
 public:
  static Deadline after(Duration limit) { return Deadline(now(), limit); }
  static Deadline from(Clock::time_point begin, Duration limit) { return Deadline(begin, limit); }
  static Deadline after_seconds(double seconds) { return after(from_seconds(seconds)); }

  bool expired() const { return now() >= at(); }
  Clock::time_point at() const { return begin_ + limit_; }
  Duration remaining() const { return std::max(Duration(0), Duration(at() - now())); }
  // For poll() and epoll_wait(): the remaining milliseconds, rounded up, at most a day.
  int poll_timeout_ms() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(remaining()).count();
    return int(std::min<std::int64_t>(left, 86400000));
  }
  Clock::time_point begin() const { return begin_; }
  double waited() const { return to_seconds(now() - begin_); }
  double limit() const { return to_seconds(limit_); }
  // The earlier of this deadline and `limit` from now, for one attempt among several.
  Deadline at_most(Duration limit) const { return Deadline(now(), std::min(limit, remaining())); }

  // A kTimeout error with waited and limit set.
  Error error(std::string detail, std::string hint = {}) const {
    return Error{.code = Code::kTimeout,
                 .detail = std::move(detail),
                 .hint = std::move(hint),
                 .waited = waited(),
                 .limit = limit()};
  }

 private:
  Deadline(Clock::time_point begin, Duration limit) : begin_(begin), limit_(limit) {}
  Clock::time_point begin_;
  Duration limit_;
};

}  // namespace tutti
