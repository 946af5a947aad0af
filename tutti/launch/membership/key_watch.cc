// The thread waits in slices, because a wait of a store cannot be called off from outside.
#include "tutti/launch/membership/key_watch.h"

#include <sys/eventfd.h>

#include <atomic>
#include <thread>

#include "tutti/base/fd.h"
#include "tutti/base/mutex.h"
#include "tutti/base/thread.h"
#include "tutti/store/tcp_store.h"

namespace tutti::launch::membership {
namespace {

constexpr auto kSlice = std::chrono::milliseconds(500);

class TcpWatch final : public KeyWatch {
 public:
  explicit TcpWatch(Watch watch) : watch_(std::move(watch)) {}
  int fd() const override { return watch_.fd(); }
  std::optional<Result<std::string>> try_read() override { return watch_.try_read(); }

 private:
  Watch watch_;
};

class ThreadWatch final : public KeyWatch {
 public:
  ThreadWatch(std::unique_ptr<Store> store, std::string key, Fd event)
      : store_(std::move(store)),
        key_(std::move(key)),
        event_(std::move(event)),
        thread_(start_thread([this] { run(); }).or_throw()) {}
  ~ThreadWatch() override {
    stop_ = true;
    thread_.join();
  }
  int fd() const override { return event_.get(); }
  std::optional<Result<std::string>> try_read() override {
    MutexLock lock(mutex_);
    return answer_;
  }

 private:
  void run() {
    while (!stop_) {
      auto answer = store_->get(key_, Deadline::after(kSlice));
      if (!answer.ok() && answer.error().code == Code::kTimeout) continue;
      {
        MutexLock lock(mutex_);
        answer_ = std::move(answer);
      }
      (void)eventfd_write(event_.get(), 1);
      return;
    }
  }

  const std::unique_ptr<Store> store_;
  const std::string key_;
  const Fd event_;
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  std::optional<Result<std::string>> answer_ TUTTI_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<KeyWatch>> KeyWatch::open(Store& store, const std::string& key, Deadline deadline) {
  if (auto* const tcp = dynamic_cast<TcpStore*>(&store))
    return std::unique_ptr<KeyWatch>(new TcpWatch(TUTTI_TRY(tcp->watch(key, deadline, /*goes_over=*/false))));
  Fd event = TUTTI_TRY(make_eventfd());
  auto handle = TUTTI_TRY(store.clone(deadline));
  return as_result(
      [&] { return std::unique_ptr<KeyWatch>(new ThreadWatch(std::move(handle), key, std::move(event))); });
}

}  // namespace tutti::launch::membership
