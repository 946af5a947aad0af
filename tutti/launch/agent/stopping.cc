#include "tutti/launch/agent/stopping.h"

#include <csignal>

namespace tutti {
namespace {

constexpr auto kTellLimit = std::chrono::milliseconds(500);  // for ranks to print the cause that they read in the store
constexpr auto kStopKillLimit = std::chrono::seconds(5);     // what SIGKILL may take

}  // namespace

void Stopping::begin(Duration grace) {
  if (!running()) return;
  for (Worker& worker : workers_) {
    if (worker.alive()) worker.mark_stopped();
  }
  grace_ = grace;
  phase_ = Phase::kTold;
  ends_ = Deadline::after(kTellLimit);
}

void Stopping::pass_on(int signal, Duration grace) {
  if (!running()) return;
  for (Worker& worker : workers_) {
    if (worker.alive()) worker.mark_asked();
  }
  grace_ = grace;
  workers_.request_stop(signal);
  ask(signal);
}

void Stopping::ask(int signal) {
  workers_.stop_groups(signal);
  workers_.continue_groups();
  phase_ = Phase::kAsked;
  ends_ = Deadline::after(grace_);
}

void Stopping::kill() {
  for (Worker& worker : workers_) {
    if (worker.alive()) worker.mark_killed();
  }
  workers_.stop_groups(SIGKILL);
  phase_ = Phase::kKilled;
  ends_ = Deadline::after(kStopKillLimit);
}

void Stopping::listen(PollSet& events) const {
  if (ends_ && workers_.any_alive()) events.wake_at(ends_->at());
}

void Stopping::on_time() {
  if (!ends_ || !ends_->expired() || !workers_.any_alive()) return;
  switch (phase_) {
    case Phase::kRunning:
      break;
    case Phase::kTold:
      ask(SIGTERM);
      break;
    case Phase::kAsked:
      kill();
      break;
    case Phase::kKilled:
      for (Worker& worker : workers_) worker.give_up();  // end_descendants() says which of them the kernel keeps
      break;
  }
}

}  // namespace tutti
