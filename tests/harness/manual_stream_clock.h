#pragma once
// A stream that runs when the test says so, and its clock (trace/stream_clock.h).
#include <memory>
#include <optional>

#include "tutti/trace/stream_clock.h"

namespace tutti::test {

class ManualStreamClock final : public StreamClock {
 public:
  // Puts work on the stream that takes so long.
  void put(Duration work) { put_ += work; }
  // The stream runs all that was put on it.
  void run() { ran_ = put_; }

  StreamMarkPtr mark() override { return is_broken ? nullptr : std::make_shared<Mark>(*this); }
  std::optional<Duration> between(StreamMark& from, StreamMark& to) override {
    return static_cast<Mark&>(to).at - static_cast<Mark&>(from).at;
  }
  std::optional<Clock::time_point> host_time(StreamMark& mark) override {
    return Clock::time_point(static_cast<Mark&>(mark).at);
  }

  bool is_broken = false;  // takes no marks

 private:
  struct Mark final : StreamMark {
    explicit Mark(const ManualStreamClock& clock) : of(clock), at(clock.put_) {}
    bool has_passed() override { return of.ran_ >= at; }
    const ManualStreamClock& of;
    const Duration at;
  };
  Duration put_{1}, ran_{0};
};

}  // namespace tutti::test
