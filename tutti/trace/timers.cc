#include "tutti/trace/timers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tutti/base/error.h"

namespace tutti {

void Timer::start() {
  TUTTI_REQUIRE(!runs_, "the timer \"", name_, "\" is started, but it is already running");
  runs_ = true;
  begin_ = now();
}

void Timer::stop() {
  TUTTI_REQUIRE(runs_, "the timer \"", name_, "\" is stopped, but it is not running");
  runs_ = false;
  sum_ += now() - begin_;
  ++count_;
}

double Timer::seconds() const { return to_seconds(sum_ + (runs_ ? Duration(now() - begin_) : Duration(0))); }

Timer& Timers::operator[](std::string_view name) {
  for (const auto& timer : timers_)
    if (timer->name_ == name) return *timer;
  timers_.push_back(std::unique_ptr<Timer>(new Timer(std::string(name))));
  return *timers_.back();
}

std::vector<TimerReading> Timers::take() {
  std::vector<TimerReading> readings;
  const Clock::time_point at = now();
  for (const auto& timer : timers_) {
    if (timer->runs_) {
      timer->sum_ += at - timer->begin_;
      timer->begin_ = at;
    } else if (timer->count_ == 0) {
      continue;
    }
    readings.push_back({timer->name_, to_seconds(timer->sum_), timer->count_});
    timer->sum_ = Duration(0);
    timer->count_ = 0;
  }
  return readings;
}

std::vector<TimerSpread> spread(const std::vector<std::vector<TimerReading>>& readings) {
  std::vector<TimerSpread> timers;
  std::map<std::string, std::size_t> known;
  for (std::size_t rank = 0; rank < readings.size(); ++rank) {
    for (const TimerReading& reading : readings[rank]) {
      const auto [found, fresh] = known.try_emplace(reading.name, timers.size());
      if (fresh)
        timers.push_back(
            {.name = reading.name, .least = reading.seconds, .most = reading.seconds, .slowest = int(rank)});
      TimerSpread& timer = timers[found->second];
      timer.least = std::min(timer.least, reading.seconds);
      if (reading.seconds > timer.most) {
        timer.most = reading.seconds;
        timer.slowest = int(rank);
      }
      timer.mean += reading.seconds;
      ++timer.ranks;
    }
  }
  for (TimerSpread& timer : timers) timer.mean /= timer.ranks;
  return timers;
}

std::string spread_text(const std::vector<TimerSpread>& timers) {
  std::string out = "(min, max) time across ranks (ms):\n";
  for (const TimerSpread& timer : timers)
    out += fmt::format("    {:.<48}: ({:.2f}, {:.2f})\n", timer.name + " ", timer.least * 1e3, timer.most * 1e3);
  return out;
}

}  // namespace tutti
