#pragma once
// The descriptors and the time that one turn of the agent's loop waits for. It is filled anew at each turn: who has
// nothing to wait for now (a console that has taken all, a worker whose reader must not run ahead) adds nothing.
#include <poll.h>

#include <functional>
#include <optional>
#include <vector>

#include "tutti/base/deadline.h"

namespace tutti {

class PollSet {
 public:
  using Ready = std::function<void()>;

  // `ready` is called by wait() if one of `events` (POLLIN, POLLOUT) or an error or hang-up holds. `fd` < 0: not
  // watched. The descriptor is borrowed until wait() has come back.
  void watch(int fd, short events, Ready ready);
  // wait() comes back then at the latest; the earliest counts.
  void wake_at(Clock::time_point when);
  void wake_after(Duration limit) { wake_at(now() + limit); }

  // Blocks until something is ready, a signal arrives or the time has come; calls in the order of watch().
  void wait();

 private:
  std::vector<pollfd> fds_;
  std::vector<Ready> ready_;
  std::optional<Clock::time_point> wake_;
};

}  // namespace tutti
