#pragma once
// Timers by level, as Megatron-LM's --timing-log-level has them: those above the level that was asked for cost nothing.
#include <memory>
#include <string_view>
#include <utility>

#include "tutti/trace/timers.h"

namespace tutti {

class LeveledTimers {
 public:
  // Runs until it goes.
  class Timing {
   public:
    explicit Timing(Timer* timer) : timer_(timer) {
      if (timer_) timer_->start();
    }
    ~Timing() {
      if (timer_) timer_->stop();
    }
    Timing(const Timing&) = delete;
    Timing& operator=(const Timing&) = delete;

   private:
    Timer* const timer_;
  };

  // `clock`: of the GPU that is measured; null: the host's.
  explicit LeveledTimers(int level, std::shared_ptr<StreamClock> clock = nullptr)
      : level_(level), timers_(std::move(clock)) {}
  [[nodiscard]] Timing time(std::string_view name, int level) {
    return Timing(level <= level_ ? &timers_[name] : nullptr);
  }
  [[nodiscard]] Timing time_on_host(std::string_view name, int level) {
    return Timing(level <= level_ ? &timers_.on_host(name) : nullptr);
  }
  Timers& timers() { return timers_; }

 private:
  const int level_;
  Timers timers_;
};

}  // namespace tutti
