#include "torch_work.h"

#include <algorithm>

#include "tutti/base/deadline.h"

namespace tutti::python {

std::vector<Work> Submitted::all_works() const {
  std::vector<Work> all;
  for (std::size_t i = 0; i < works_.size(); ++i) all.push_back(works_[i]);
  for (const auto& part : parts_) {
    const std::vector<Work> of_part = part->all_works();
    all.insert(all.end(), of_part.begin(), of_part.end());
  }
  return all;
}

bool Submitted::done() const {
  if (settled_.load()) return true;
  for (std::size_t i = 0; i < works_.size(); ++i)
    if (!works_[i].done()) return false;
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->done(); });
}

void Submitted::complete() {
  if (settled_.load()) return;
  Status first = works_.wait();
  for (const auto& part : parts_) {
    part->complete();
    if (first.ok()) first = part->status();
  }
  settle(std::move(first));
}

bool Submitted::complete_within(Duration limit) {
  if (settled_.load()) return true;
  const Deadline deadline = Deadline::after(limit);
  for (const Work& work : all_works())
    if (!work.wait_for(deadline.remaining())) return false;
  complete();
  return true;
}

// Whoever comes first copies; the others wait for that.
void Submitted::settle(Status status) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const MutexLock lock(mutex_);
    if (settled_.load()) return;
    status_ = std::move(status);
    try {
      if (status_.ok()) call_->copy_out();
    } catch (const std::exception& error) {
      status_ = Error{.code = Code::kInternal, .detail = std::string("the result cannot be copied: ") + error.what()};
    }
    settled_.store(true);
    future = future_;
  }
  if (on_end_) on_end_(status_);
  if (future) fulfil(*future);
}

void Submitted::fulfil(c10::ivalue::Future& future) const {
  if (status_.ok())
    future.markCompleted(c10::IValue(call_->results));
  else
    future.setErrorIfNeeded(exception());
}

std::exception_ptr Submitted::exception() const {
  if (status_.ok()) return nullptr;
  try {
    raise(status_.error());
  } catch (...) {
    return std::current_exception();
  }
}

// The last request that ends completes the call, on the thread of Work::on_done().
c10::intrusive_ptr<c10::ivalue::Future> Submitted::future() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const MutexLock lock(mutex_);
    if (future_) return future_;
    future_ = future =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), call_->devices());
    if (settled_.load()) {
      fulfil(*future);
      return future;
    }
  }
  const std::vector<Work> works = all_works();
  const auto left = std::make_shared<std::atomic<std::size_t>>(works.size());
  for (const Work& work : works) {
    const Status started = work.on_done([self = shared_from_this(), left] {
      if (left->fetch_sub(1) == 1) self->complete();
    });
    if (started.ok()) continue;
    {
      const MutexLock lock(mutex_);
      future_.reset();
    }
    raise(started.error());
  }
  if (works.empty()) complete();
  return future;
}

std::uint64_t TorchWork::next_key() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

Submitted::OnEnd TorchWork::on_end() const {
  return [end_profile = recordFunctionEndCallback_, hooks = hooks_, key = key_](const Status& status) {
    if (end_profile) end_profile();
    if (status.ok())
      hooks->ended_well.run(key);
    else
      hooks->failed.run();
  };
}

bool TorchWork::isCompleted() {
  if (!submitted_->is_settled() && submitted_->done()) submitted_->complete();
  return submitted_->is_settled();
}

std::exception_ptr TorchWork::exception() const { return submitted_->is_settled() ? submitted_->exception() : nullptr; }

int TorchWork::sourceRank() const {
  TORCH_CHECK(opType_ == c10d::OpType::RECVANYSOURCE, "tutti: sourceRank() is for a receive from any rank");
  return submitted_->call().source;
}

bool TorchWork::wait(std::chrono::milliseconds timeout) {
  if (timeout <= kNoTimeout) {
    submitted_->complete();
  } else if (!submitted_->complete_within(timeout)) {
    raise(Error{.code = Code::kTimeout,
                .detail = std::string(submitted_->call().title) + " has not ended after " +
                          std::to_string(timeout.count()) + " ms; it is still running"});
  }
  if (!submitted_->status().ok()) raise(submitted_->status().error());
  return true;
}

void TorchWork::abort() { TORCH_CHECK(false, "tutti: one call cannot be aborted: abort the process group"); }

}  // namespace tutti::python
