#pragma once
// How the workers of a node are brought to their end, step by step.
#include <optional>

#include "tutti/launch/agent/workers.h"

namespace tutti {

// running    until the first failure, a signal, a fault elsewhere or the time limit;
// told       the cause is in the store; ranks that read it there may say so and leave by themselves;
// asked      every live worker's process group has SIGTERM, or the user's signal; the grace runs;
// killed     the grace is over, or the user pressed Ctrl-C again: SIGKILL.
class Stopping {
 public:
  enum class Phase { kRunning, kTold, kAsked, kKilled };

  explicit Stopping(Workers& workers) : workers_(workers) {}

  bool running() const { return phase_ == Phase::kRunning; }
  // What the ranks have from SIGTERM to SIGKILL; valid once !running().
  Duration grace() const { return grace_; }

  // Because of a failure: from running to told. Nothing in any other phase.
  void begin(Duration grace);
  // At the user's wish, so that ranks can save: from running to asked.
  void pass_on(int signal, Duration grace);
  // From any phase.
  void kill();

  void listen(PollSet& events) const;
  // The next step, if its time has come.
  void on_time();

 private:
  void ask(int signal);

  Workers& workers_;
  Phase phase_ = Phase::kRunning;
  std::optional<Deadline> ends_;
  Duration grace_{};
};

}  // namespace tutti
