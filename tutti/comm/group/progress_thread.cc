// The loop drives every pending operation one step. If something moved, it starts over. If nothing moved for a while,
// it sleeps in poll() on this process's bell, the sockets that blocked operations name, the peers' sockets and the
// watched descriptors.
//
// Where much data is on its way through a socket, it sleeps at once and is woken for 64 KiB: the wire takes its time,
// and the program needs the core. (A wire of 300 Mbit/s brings a packet every 40 us, so a thread that looked for 50 us
// after each packet would never sleep.)
//
// To be woken through shared memory, it sets `asleep`, passes a fence, looks once more at everything, then calls
// poll(); see transport/bell.h.
#include "tutti/comm/group/progress_thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "tutti/base/machine.h"
#include "tutti/base/thread.h"
#include "tutti/comm/group/call_queue.h"

namespace tutti::comm {
namespace {

constexpr Duration kYieldBeforeSleep = std::chrono::microseconds(50);
constexpr Duration kLongestSleep = std::chrono::seconds(1);  // deadlines and warnings are looked at this often at least
constexpr Duration kLongestWithoutPoll = std::chrono::milliseconds(100);  // of what is watched, while much is to do

timespec timespec_of(Duration duration) {
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  return {.tv_sec = time_t(nanoseconds / 1'000'000'000), .tv_nsec = long(nanoseconds % 1'000'000'000)};
}

}  // namespace

Result<std::unique_ptr<ProgressThread>> ProgressThread::create(transport::Host* host, std::vector<Watched> watched) {
  return as_result([&] { return std::unique_ptr<ProgressThread>(new ProgressThread(host, std::move(watched))); });
}

ProgressThread::ProgressThread(transport::Host* host, std::vector<Watched> watched)
    : host_(host), watched_(std::move(watched)) {
  reserve();
  if (!host_) own_bell_ = make_eventfd().or_throw();
  bell_fd_ = host_ ? host_->own_bell_fd() : own_bell_.get();
  thread_ = start_thread([this] { run(); }).or_throw();
  ::pthread_setname_np(thread_.native_handle(), "tutti progress");
}

ProgressThread::~ProgressThread() { stop(); }

void ProgressThread::stop() {
  stopping_.store(true);
  (void)::eventfd_write(bell_fd_, 1);
  if (thread_.joinable()) thread_.join();
}

void ProgressThread::notify() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_relaxed)) (void)::eventfd_write(bell_fd_, 1);
}

// For what is usual, so that not even the first call that is handed over allocates.
void ProgressThread::reserve() {
  constexpr std::size_t kQueues = 64, kDescriptors = 256;
  {
    MutexLock lock(mutex_);
    fresh_.reserve(kQueues);
    to_forget_.reserve(kQueues);
  }
  active_.reserve(kQueues);
  polled_.reserve(kDescriptors);
  peers_.reserve(kDescriptors);
  blockers_.fds.reserve(kDescriptors);
  blockers_.ranks.reserve(kDescriptors);
}

void ProgressThread::activate(CallQueue& queue) {
  {
    MutexLock lock(mutex_);
    fresh_.push_back(&queue);
  }
  notify();
}

void ProgressThread::forget(CallQueue& queue) {
  MutexLock lock(mutex_);
  to_forget_.push_back(&queue);
  lock.unlock();
  notify();
  lock.lock();
  while (std::find(to_forget_.begin(), to_forget_.end(), &queue) != to_forget_.end()) forgot_.wait(lock);
}

bool ProgressThread::drive_all() {
  {
    MutexLock lock(mutex_);
    if (!to_forget_.empty()) {
      for (CallQueue* const queue : to_forget_) {
        std::erase(fresh_, queue);
        std::erase(active_, queue);
      }
      to_forget_.clear();
      forgot_.notify_all();
    }
    for (CallQueue* const queue : fresh_)
      if (std::find(active_.begin(), active_.end(), queue) == active_.end()) active_.push_back(queue);
    fresh_.clear();
  }
  bool moved = false;
  for (CallQueue* const queue : active_) moved |= queue->try_drive(now());
  std::erase_if(active_, [](CallQueue* queue) { return queue->retire_if_idle(); });
  return moved;
}

void ProgressThread::run() {
  Clock::time_point idle_since = now(), polled = idle_since;
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (drive_all()) {
      idle_since = now();
      if (idle_since - polled > kLongestWithoutPoll) {
        polled_.clear();
        add_watched();
        if (::poll(polled_.data(), polled_.size(), 0) > 0) act_on(polled_.data());
        polled = now();
      }
      continue;
    }
    if (!active_.empty() && now() - idle_since < kYieldBeforeSleep && !awaits_much()) {
      ::sched_yield();
      continue;
    }
    sleep();
    idle_since = now();
  }
}

void ProgressThread::add_watched() {
  for (const Watched& watched : watched_) polled_.push_back({watched.fd, POLLIN, 0});
}

void ProgressThread::act_on(const pollfd* watched) {
  for (std::size_t i = watched_.size(); i-- > 0;)
    if (watched[i].revents && !watched_[i].on_ready()) watched_.erase(watched_.begin() + std::ptrdiff_t(i));
}

bool ProgressThread::awaits_much() {
  blockers_.clear();
  for (CallQueue* const queue : active_) queue->blockers(blockers_);
  return blockers_.much;
}

void ProgressThread::sleep() {
  // Peers ring only a rank that says it sleeps, since each ring is a system call to them: so say it only if need be.
  blockers_.clear();
  for (CallQueue* const queue : active_) queue->blockers(blockers_);
  transport::BellLine* const line = host_ && blockers_.needs_bell ? &host_->own_bell_line() : nullptr;
  if (line) line->asleep.store(1, std::memory_order_relaxed);
  sleeping_.store(true, std::memory_order_relaxed);
  transport::fence_everybody(line && line->fence.load(std::memory_order_relaxed) == 0);
  // From here on every thread that moves something rings. So this is the last look that is needed, and what it leaves
  // blocked, queues that came just now included, is what to sleep for.
  const bool moved = drive_all() || stopping_.load();
  blockers_.clear();
  for (CallQueue* const queue : active_) queue->blockers(blockers_);
  const bool can_be_rung = line || !host_ || !blockers_.needs_bell;
  if (!moved && can_be_rung) {
    polled_.assign(1, {bell_fd_, POLLIN, 0});
    polled_.insert(polled_.end(), blockers_.fds.begin(), blockers_.fds.end());
    const std::size_t first_peer = polled_.size();
    peers_.clear();
    if (host_) host_->add_watched(polled_, peers_);
    const std::size_t first_watched = polled_.size();
    add_watched();
    Duration nap = kLongestSleep;
    for (CallQueue* const queue : active_) nap = std::min(nap, queue->next_check(now()));
    if (blockers_.look_again.count() > 0) nap = std::min(nap, blockers_.look_again);
    const timespec timeout = timespec_of(nap);
    if (::ppoll(polled_.data(), polled_.size(), active_.empty() ? nullptr : &timeout, nullptr) > 0) {
      for (std::size_t i = 0; i < peers_.size(); ++i)
        if (polled_[first_peer + i].revents) (void)host_->watch(peers_[i]);
      act_on(polled_.data() + first_watched);
      for (CallQueue* const queue : active_) queue->look_again();
      eventfd_t count = 0;
      if (polled_[0].revents) (void)::eventfd_read(bell_fd_, &count);
    }
  }
  sleeping_.store(false, std::memory_order_relaxed);
  if (line) line->asleep.store(0, std::memory_order_relaxed);
}

}  // namespace tutti::comm
