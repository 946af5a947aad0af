// epoll reports a batch of events. While the batch is worked through, a callback may close a later descriptor of the
// same batch and even open another one that gets the same number. So each registration carries a *stamp*, which travels
// with the event: an event whose stamp is not that of the present registration is stale and dropped.
#include "tutti/transport/event_loop.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace tutti::transport {
namespace {

std::uint64_t pack(int fd, std::uint32_t stamp) { return std::uint64_t(stamp) << 32 | std::uint32_t(fd); }

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  std::unique_ptr<EventLoop> loop(new EventLoop);
  loop->epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!loop->epoll_) return system_error(errno, "cannot create an epoll descriptor");
  loop->bell_ = TUTTI_TRY(make_eventfd());
  const int bell = loop->bell_.get();
  TUTTI_TRY(loop->add(bell, EPOLLIN, [bell](std::uint32_t) {
    eventfd_t count;
    (void)::eventfd_read(bell, &count);
  }));
  return loop;
}

Status EventLoop::add(int fd, std::uint32_t events, Ready ready) {
  const std::uint32_t stamp = next_stamp_++;
  epoll_event event{.events = events, .data = {.u64 = pack(fd, stamp)}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return system_error(errno, "cannot watch a descriptor");
  entries_[fd] = std::make_shared<Entry>(Entry{stamp, std::move(ready)});
  return {};
}

Status EventLoop::modify(int fd, std::uint32_t events) {
  const auto entry = entries_.find(fd);
  if (entry == entries_.end()) return Error{.detail = "descriptor " + std::to_string(fd) + " is not watched"};
  epoll_event event{.events = events, .data = {.u64 = pack(fd, entry->second->stamp)}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0)
    return system_error(errno, "cannot watch a descriptor");
  return {};
}

void EventLoop::remove(int fd) {
  if (entries_.erase(fd) != 0) (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

EventLoop::Timer EventLoop::at(Clock::time_point when, std::function<void()> due) {
  const Timer timer(when, next_timer_++);
  timers_.emplace(timer, std::move(due));
  return timer;
}

void EventLoop::cancel(const Timer& timer) { timers_.erase(timer); }

void EventLoop::wake() { (void)::eventfd_write(bell_.get(), 1); }

int EventLoop::wait_ms(std::optional<Duration> timeout) const {
  if (!timers_.empty()) {
    const Duration until = timers_.begin()->first.first - now();
    timeout = timeout ? std::min(*timeout, until) : until;
  }
  if (!timeout) return -1;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(std::max(*timeout, Duration(0))).count();
  return int(std::min<std::int64_t>(ms, 86400000));
}

void EventLoop::run_timers() {
  const auto moment = now();  // fixed: a timer that sets another for "now" does not run for ever
  while (!timers_.empty() && timers_.begin()->first.first <= moment) {
    const auto due = timers_.extract(timers_.begin());
    due.mapped()();
  }
}

Status EventLoop::run_once(std::optional<Duration> timeout) {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), int(events.size()), wait_ms(timeout));
  if (count < 0 && errno != EINTR) return system_error(errno, "cannot wait for events");
  for (int i = 0; i < count; ++i) {
    const auto fd = int(std::uint32_t(events[std::size_t(i)].data.u64));
    const auto stamp = std::uint32_t(events[std::size_t(i)].data.u64 >> 32);
    const auto found = entries_.find(fd);
    if (found == entries_.end() || found->second->stamp != stamp) continue;
    const std::shared_ptr<Entry> entry = found->second;  // outlives its own removal
    entry->ready(events[std::size_t(i)].events);
  }
  run_timers();
  return {};
}

}  // namespace tutti::transport
