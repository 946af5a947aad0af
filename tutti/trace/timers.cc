#include "tutti/trace/timers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tutti/base/error.h"

namespace tutti {

void Timer::start() {
  TUTTI_REQUIRE(!runs_, "the timer \"", name_, "\" is started, but it is already running");
  runs_ = true;
  if (clock_)
    begin_mark_ = clock_->mark();
  else
    begin_ = now();
}

void Timer::stop() {
  TUTTI_REQUIRE(runs_, "the timer \"", name_, "\" is stopped, but it is not running");
  runs_ = false;
  if (clock_) {
    pending_.push_back({std::move(begin_mark_), clock_->mark()});
    return settle();
  }
  sum_ += now() - begin_;
  ++count_;
}

// Adds what has run.
void Timer::settle() {
  for (; !pending_.empty(); pending_.pop_front()) {
    const auto& [begin, end] = pending_.front();
    if (!begin || !end) continue;
    if (!end->has_passed()) return;
    const auto took = clock_->between(*begin, *end);
    if (!took) continue;
    sum_ += *took;
    ++count_;
  }
}

double Timer::seconds() const { return to_seconds(sum_ + (runs_ && !clock_ ? Duration(now() - begin_) : Duration(0))); }

Timer& Timers::operator[](std::string_view name) { return named(name, clock_.get()); }
Timer& Timers::on_host(std::string_view name) { return named(name, nullptr); }

Timer& Timers::named(std::string_view name, StreamClock* clock) {
  for (const auto& timer : timers_)
    if (timer->name_ == name) return *timer;
  timers_.push_back(std::unique_ptr<Timer>(new Timer(std::string(name), clock)));
  return *timers_.back();
}

std::vector<TimerReading> Timers::take() {
  std::vector<TimerReading> readings;
  const Clock::time_point at = now();
  for (const auto& timer : timers_) {
    if (timer->clock_) timer->settle();
    if (timer->runs_ && !timer->clock_) {
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
