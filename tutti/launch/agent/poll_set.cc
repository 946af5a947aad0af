#include "tutti/launch/agent/poll_set.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace tutti {

void PollSet::watch(int fd, short events, Ready ready) {
  if (fd < 0) return;
  fds_.push_back({fd, events, 0});
  ready_.push_back(std::move(ready));
}

void PollSet::wake_at(Clock::time_point when) { wake_ = wake_ ? std::min(*wake_, when) : when; }

void PollSet::wait() {
  int timeout = -1;
  if (wake_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*wake_ - now()).count();
    timeout = int(std::clamp<std::int64_t>(left, 0, 86400000));
  }
  const int count = poll(fds_.data(), fds_.size(), timeout);
  if (count < 0 && errno != EINTR) std::abort();
  if (count <= 0) return;
  for (std::size_t i = 0; i < fds_.size(); ++i) {
    if (fds_[i].revents) ready_[i]();
  }
}

}  // namespace tutti
