#pragma once
// The state behind a Group, on one rank: it wires together the queue of calls (call_queue.h), the paths that carry them
// (paths.h), what is known of the peers (peers.h), the end of the group (failure.h), and what a call that waits for
// long can say (diagnosis.h).
//
// Threads: any.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/group/call_queue.h"
#include "tutti/comm/group/diagnosis.h"
#include "tutti/comm/group/failure.h"
#include "tutti/comm/group/monitored_barrier.h"
#include "tutti/comm/group/paths.h"
#include "tutti/comm/group/peers.h"
#include "tutti/comm/group/process.h"

namespace tutti::comm {

class GroupState final : private CallQueue::Owner {
 public:
  using Spec = GroupSpec;
  // Every member calls. `gather` is called once, on every member, if there are several.
  static Result<std::shared_ptr<GroupState>> create(std::shared_ptr<Process> process, Spec spec,
                                                    const Paths::GatherTexts& gather, Deadline deadline);
  GroupState(const GroupState&) = delete;

  const Spec& spec() const { return spec_; }
  int rank() const { return spec_.rank; }
  int size() const { return spec_.size(); }
  Process& process() const { return *process_; }
  const std::shared_ptr<Process>& process_ptr() const { return process_; }
  bool is_direct() const { return paths_.is_direct(); }
  const std::string& engine() const { return process_->engine_name; }
  const comm::Selector* selector() const { return paths_.selector(); }
  const char* device_engine(const Request& request) const { return paths_.device_engine(request); }
  std::string device() const { return paths_.device(); }  // where this rank computes
  Duration limit() const { return limit_; }
  std::uint64_t next_child() { return ++children_; }

  Status validate(const Request& request) const;  // what is wrong with it, before anything is started
  Status run(const Request& request, CallSite at);
  Result<std::shared_ptr<Submission>> submit(const Request& request, CallSite at);
  // All of them, or, where one cannot be right, none.
  Result<std::vector<std::shared_ptr<Submission>>> submit(std::span<const Request> requests, CallSite at);
  Status wait(Submission& submission) { return queue_.wait(submission); }
  std::optional<Status> wait_for(Submission& submission, Duration limit) {
    return queue_.wait(submission, Deadline::after(limit));
  }
  Status wait_on(Submission& submission, void* stream) { return queue_.wait_on(submission, stream); }
  Status monitored_barrier(Duration limit);
  void abort(Error error);
  // Ends the group because an exception unwinds the caller while `submission` uses its buffers; returns when it no
  // longer does.
  void abandon(Submission& submission);
  // The last handle goes: waits for what is pending, for a while, or ends it at once if an exception unwinds the
  // caller. Then no thread drives the group any more.
  void leave(bool unwinding);
  Status status() const { return failure_.status(); }

 private:
  GroupState(std::shared_ptr<Process> process, Spec spec);

  // CallQueue::Owner
  void call_failed(const Request& request, std::uint64_t sequence, Trouble trouble) override;
  void call_overdue(const Submission& call, const Submission& blocked) override;
  std::optional<Trouble> check(Submission& call, Clock::time_point time) override TUTTI_REQUIRES(queue_.driver());

  CallQueue::Setup queue_setup();
  Status run_inline(const Request& request, CallSite at) TUTTI_RELEASE(queue_.driver());
  void run_alone_on_device(Submission& submission);
  void compare(Submission& call, const std::vector<int>& awaited);
  void warn(Submission& call, const comm::Blockers& blockers);
  Error complete(Error error, const Request& request, std::uint64_t sequence) const;
  Status why_ended(const Request& request);
  Status turn_away(const Request& request, CallSite at);  // why_ended(), on record
  const char* limit_text(const Request& request) const;

  const std::shared_ptr<Process> process_;
  const Spec spec_;
  const Duration limit_;
  std::atomic<std::uint64_t> children_{0};
  const std::shared_ptr<trace::FlightTrack> flight_;           // null: off, or a group of one
  comm::Blockers blockers_ TUTTI_GUARDED_BY(queue_.driver());  // in check()

  const Peers peers_;
  Paths paths_;
  CallQueue queue_;
  Diagnosis diagnosis_;
  Failure failure_;  // after what its hooks use
  MonitoredBarrier barrier_;
};

}  // namespace tutti::comm
