#include "tutti/comm/work.h"

#include <algorithm>

#include "tutti/base/thread.h"
#include "tutti/comm/group/group_state.h"
#include "tutti/comm/stream_calls.h"

namespace tutti {

struct Work::Pending {
  std::shared_ptr<comm::Submission> submission;
  std::shared_ptr<comm::GroupState> group;
  const Unwinding unwinding{};

  Pending(std::shared_ptr<comm::Submission> s, std::shared_ptr<comm::GroupState> g)
      : submission(std::move(s)), group(std::move(g)) {}
  Pending(const Pending&) = delete;
  ~Pending() {
    if (unwinding.is_past() && !submission->done.load(std::memory_order_acquire)) group->abandon(*submission);
  }
};

Work::Work(std::shared_ptr<comm::Submission> submission, std::shared_ptr<comm::GroupState> group)
    : pending_(std::make_shared<Pending>(std::move(submission), std::move(group))) {}

bool Work::done() const { return !pending_ || pending_->submission->done.load(std::memory_order_acquire); }

Status Work::wait() const { return pending_ ? pending_->group->wait(*pending_->submission) : failed_; }

Status Work::wait_on(void* stream) const {
  if (!pending_) return failed_;
  TUTTI_TRY(pending_->group->wait_on(*pending_->submission, stream));
  if (done()) return wait();  // it may have failed since
  comm::left_to_stream(pending_->group, pending_->submission);
  return {};
}

std::optional<Status> Work::wait_for(Duration limit) const {
  return pending_ ? pending_->group->wait_for(*pending_->submission, limit) : failed_;
}

Status Work::on_done(std::function<void()> act) const {
  if (pending_) return pending_->submission->on_done(std::move(act));
  act();
  return {};
}

bool Works::done() const {
  return std::all_of(works_.begin(), works_.end(), [](const Work& work) { return work.done(); });
}

Status Works::wait() const {
  Status first;
  for (const Work& work : works_)
    if (Status status = work.wait(); first.ok() && !status.ok()) first = std::move(status);
  return first;
}

}  // namespace tutti
