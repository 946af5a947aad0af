#pragma once
// What ranks are doing, in words; whether they hang, and which rank the others wait for; which rank is slow. Pure
// functions and state machines over observations of the ranks: no clock, no system call.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/trace/flight/recorder.h"
#include "tutti/trace/progress/reader.h"

namespace tutti::launch {

// Describes a recorded call (comm/group/flight.h has the function). Null: calls are named by their number only.
using DescribeCall = trace::FlightRecorder::Describe;

struct MonitorOptions {
  // How long the ranks may make no progress before the job ends; none: learned from its steps; 0: for ever.
  std::optional<Duration> hang_timeout;
  DescribeCall describe = nullptr;
};

// "all_reduce #42 (f32[1048576], sum) on group dp"
std::string call_text(const trace::ProgressCall& call, const trace::ProgressGroup& group, DescribeCall describe);
// "step 12, for 3.2 s in all_reduce #42 (f32[1024], sum) on group world"; "step 12, in no call for 40 s; its last was
// ..."; "in tutti::init()"; empty: it has not called init(). At the moment in which the page was read.
std::string activity_text(const trace::RankProgress& rank, DescribeCall describe);
// Shorter, for a table: "all_reduce #42 (...) on group world", "computes", "in tutti::init()".
std::string state_text(const trace::RankProgress& rank, DescribeCall describe);
// How long it has been in its call, or, in none, since its last call or step; -1: not known.
double seconds_in_state(const trace::RankProgress& rank);

// How long the ranks may make no progress. Given by the user, or learned. While no rank has reported a step there is no
// limit. Then it is a multiple of the longest time between two signs of progress, and never less than some minutes, for
// the evaluation at the end of an epoch and for checkpoints.
class HangLimit {
 public:
  static constexpr Duration kLeast = std::chrono::minutes(5), kLeastForWarning = std::chrono::seconds(30);
  static constexpr int kFactor = 20, kFactorForWarning = 10;
  static constexpr int kSteps = 3;  // nothing is learned from fewer

  // 0: never a hang.
  explicit HangLimit(std::optional<Duration> given) : given_(given) {}

  // Some rank made progress, `gap` after the last progress of any rank, at `steps` steps in all.
  void learn(Duration gap, std::uint64_t steps);
  std::optional<Duration> limit() const;    // then the job ends
  std::optional<Duration> warning() const;  // then a warning is printed
  // "as --hang-timeout has it", "learned: the ranks made progress every 2.1 s or sooner"
  std::string text() const;

 private:
  std::optional<Duration> given_;
  Duration longest_{};
  std::uint64_t steps_ = 0;
};

// One observation of a rank.
struct RankSeen {
  int rank = 0;
  trace::RankProgress progress;
  bool suspended = false;
  bool alive = true;
  double processor = 0;  // seconds of processor time used so far
};

struct HangCause {
  std::vector<int> blamed;  // ranks that the others wait for; empty: none of this node
  std::string text;         // "ranks 0, 1, 3 wait in all_reduce #42 (...) on group dp for rank 2, which ..."
};
HangCause explain_hang(const std::vector<RankSeen>& ranks, DescribeCall describe);

// The one rank that all others wait for at this moment, while it computes; none: there is no such rank.
std::optional<int> awaited_rank(const std::vector<RankSeen>& ranks);

struct Straggler {
  int rank = 0, pid = 0;
  int checks = 0;        // in which all other ranks waited for it
  double seconds = 0;    // the length of the window
  double processor = 0;  // seconds of processor time that it used in the window
};
// "rank 2 (pid 812) is slow: in 55 of 60 looks at it (30 s) all other ranks of this node waited for it; ..."
std::string straggler_text(const Straggler& straggler);

// Finds the rank that keeps the others waiting, over regular observations of all ranks of a node.
class Stragglers {
 public:
  static constexpr int kChecks = 60;  // in a window
  static constexpr double kPart = 0.8;

  // One observation. Returns the straggler, at the end of a window and once in a job; none while all ranks stand still
  // (`standing`), which is no slowness.
  std::optional<Straggler> check(const std::vector<RankSeen>& ranks, bool standing);
  // The share of the last few observations in which the rank was in a call; -1: too few observations.
  double waits(int rank) const;

 private:
  struct Counted {
    int awaited = 0;            // observations of this window in which the others waited for it
    std::int64_t began = 0;     // of the window, in nanoseconds
    double processor_then = 0;  // at that time
    int checks = 0;
    double waits = 0;
    bool reported = false;
  };
  int checks_ = 0;
  std::map<int, Counted> ranks_;
};

}  // namespace tutti::launch
