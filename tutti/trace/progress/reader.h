#pragma once
// The agent's side of a progress page (page.h): what a rank does, read without touching its memory, so that
// neither a rank that writes nor one that is dead matters.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/trace/flight/ring.h"

namespace tutti::trace {

// A call as the page has it. Times are nanoseconds of CLOCK_MONOTONIC; 0: not, or not known.
struct ProgressCall {
  bool exchange = false;  // a send or recv
  std::uint64_t sequence = 0;
  FlightState state = FlightState::kBeingWritten;
  FlightCall call;  // `site` points into the rank's memory
  std::int64_t scheduled = 0, started = 0, ended = 0;

  bool is_over() const { return state != FlightState::kScheduled && state != FlightState::kStarted; }
  std::int64_t began() const { return scheduled ? scheduled : started; }
};

struct ProgressGroup {
  std::uint64_t id = 0;
  std::string name;
  int rank = 0, size = 1;
  bool left = false;
  std::uint64_t calls = 0, exchanges = 0;  // begun so far
  std::optional<ProgressCall> oldest;      // under way
  std::optional<ProgressCall> newest;      // collective, under way or over
  std::optional<ProgressCall> newest_exchange;
};

struct ProgressFrames {
  int signal = 0;
  int thread = 0;
  std::uint64_t address = 0;
  std::vector<std::uint64_t> frames;
  std::string maps;
  std::uint32_t number = 0;  // 0: none was taken
};

struct RankProgress {
  int pid = 0;  // 0: the worker has not called init()
  int rank = 0, world_size = 1;
  bool called = false;  // init() has begun
  bool joined = false;
  int lost = -1;          // the rank for want of which a call of this one failed; -1: none
  bool echoes = false;    // a call failed because another rank had ended the group
  bool recorded = false;  // there are rings: the flight recorder is on, and there is more than one rank
  std::uint64_t steps = 0;
  std::int64_t step = -1;  // valid if steps is not 0
  std::int64_t step_began = 0;
  std::vector<ProgressGroup> groups;
  std::string message;
  std::string alarm;  // what people should know of it while it runs; empty: nothing
  ProgressFrames crash, look;
  std::int64_t read_at = 0;  // nanoseconds of CLOCK_MONOTONIC

  // Changes whenever the rank gets on: a step, a call that begins or ends.
  std::uint64_t progress_mark = 0;
  // Its current call: the oldest call under way, of any group, else the one that ended last; null: unknown.
  const ProgressCall* current(const ProgressGroup** of = nullptr) const;
};

// Threads: any.
class ProgressReader {
 public:
  // The descriptor is borrowed, and outlives this.
  explicit ProgressReader(int fd) : fd_(fd) {}

  RankProgress read() const;
  // Without stacks and message.
  RankProgress read_brief() const;
  // Asks the rank to save and leave, with the number of the signal that asked for it.
  Status request_stop(int signal) const;

 private:
  std::optional<ProgressCall> read_call(int group, bool exchange, std::uint64_t sequence, std::uint64_t entries,
                                        const FlightClock::Scale& scale) const;
  RankProgress read(bool all) const;

  int fd_;
  FlightClock clock_;
};

}  // namespace tutti::trace
