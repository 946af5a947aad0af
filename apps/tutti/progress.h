#pragma once
// How far a long command is, on standard error: one line that is written over on a terminal, else a line now and then.
#include <string>

#include "tutti/base/clock.h"

namespace tutti::cli {

// One thread at a time.
class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  // `doing` is `share` done, from 0 to 1; `more`: ", 210 MB/s" or nothing. The time that is left is reckoned from when
  // `doing` was said first.
  void show(const std::string& doing, double share, const std::string& more = {});
  void clear();  // the line, before something else is written

 private:
  const bool terminal_;
  bool written_ = false;
  std::string doing_;
  double begin_share_ = 0;
  Clock::time_point begin_ = now(), last_ = now();
};

}  // namespace tutti::cli
