#pragma once
// The flight recorder of a rank: the latest operations of all its groups. It is always on, and written to a file when
// the job fails or on request (docs/how-to/debug-a-hang.md).
//
// Threads: all members may be called by any. Groups write into their own rings (FlightRing says how); write() reads
// them while they go on.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/mutex.h"
#include "tutti/trace/flight/dump.h"
#include "tutti/trace/flight/ring.h"
#include "tutti/trace/progress/page.h"

namespace tutti::trace {

// The record of one group.
struct FlightTrack {
  FlightTrack(FlightGroup of, std::size_t entries, const FlightClock& clock)
      : group(std::move(of)), collectives(entries, clock), exchanges(entries, clock) {}
  // Rings that the agent can read.
  FlightTrack(FlightGroup of, std::unique_ptr<ProgressPage::GroupSlot> in, const FlightClock& clock)
      : group(std::move(of)),
        place(std::move(in)),
        collectives(place->ring(0).data(), place->ring(0).size(), place->newest(0), clock),
        exchanges(place->ring(1).data(), place->ring(1).size(), place->newest(1), clock) {}
  void leave() {
    left.store(true);
    if (place) place->left();
  }
  const FlightGroup group;                               // `left` is the atomic below
  const std::unique_ptr<ProgressPage::GroupSlot> place;  // null: the rings have memory of their own
  FlightRing collectives, exchanges;
  std::atomic<bool> left{false};  // the rank has given up the group
};

class FlightRecorder {
 public:
  static constexpr std::size_t kEntries = 2000;

  struct Options {
    std::size_t entries = kEntries;
    std::string folder;  // empty: default_flight_folder(job)
    std::string job;
    int rank = 0;
    int world_size = 1;
    ProgressPage* page = nullptr;  // that the agent reads; outlives the recorder and its tracks; null: none
  };
  // Fills in what the numbers of a FlightCall mean: call, kind, dtype, op, root, tag, count, bytes, way.
  using Describe = void (*)(const FlightCall& call, FlightOperation& operation);

  FlightRecorder(Options options, Describe describe);

  const Options& options() const { return options_; }
  // A record of this rank that an earlier run left in the folder gets another name (flight-rank3.previous.json).
  void put_older_record_aside() const;
  std::shared_ptr<FlightTrack> add(FlightGroup group);
  // The last `entries` operations of the rank, and of each group its last few.
  FlightDump snapshot() const;
  // Writes the record (or writes it anew), with `reason` added to those before; its path. A few milliseconds.
  enum class Why { kFailure, kAsked };
  Result<std::string> write(Why why, const std::string& reason);

 private:
  const Options options_;
  const Describe describe_;
  const FlightClock clock_;
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<FlightTrack>> tracks_ TUTTI_GUARDED_BY(mutex_);
  Mutex writing_;
  std::vector<std::string> reasons_ TUTTI_GUARDED_BY(writing_);
  bool failed_ TUTTI_GUARDED_BY(writing_) = false;
};

}  // namespace tutti::trace
