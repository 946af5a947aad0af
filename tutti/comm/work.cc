#include "tutti/comm/work.h"

#include "tutti/comm/group_state.h"

namespace tutti {

bool Work::done() const { return !submission_ || submission_->done.load(std::memory_order_acquire); }

Status Work::wait() const {
  if (!submission_) return failed_;
  if (submission_->done.load(std::memory_order_acquire) && submission_->result.ok()) return {};
  return submission_->group->wait(*submission_);
}

}  // namespace tutti
