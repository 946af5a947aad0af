#pragma once
// A Rendezvous without a store, a coordinator or a network: the nodes of a job are objects of one process around one
// membership table. It passes the suite that all implementations pass (tests/conformance/rendezvous_conformance.cc),
// and the simulation runs on it with a clock of its own (tutti/launch/membership/simulation_test.cc).
#include <poll.h>
#include <sys/eventfd.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/base/fd.h"
#include "tutti/base/mutex.h"
#include "tutti/launch/membership/membership.h"
#include "tutti/launch/membership/options.h"

namespace tutti::test {

class MemoryNode;

// Threads: any. Its nodes die before it.
class MemoryJob {
 public:
  using Time = Clock::time_point;

  // `self`: the id of the node that settles a tie, as a coordinator does.
  MemoryJob(launch::membership::Limits limits, std::string self, std::function<Time()> clock = now)
      : limits_(limits), clock_(std::move(clock)), table_(limits, std::move(self), clock_()) {}

  // A process of a node. If the object dies without leave(), the process does.
  std::unique_ptr<launch::Rendezvous> open(const std::string& id, launch::NodesOptions options);

  // What heartbeats would report: nothing was heard of the node; `certain`: it is dead for sure.
  void lose(const std::string& id, bool certain) {
    MutexLock lock(mutex_);
    if (table_.knows(id)) table_.lose(id, "is lost", certain, clock_());
    carry_out();
  }
  void tick() {
    MutexLock lock(mutex_);
    tick_locked();
  }
  bool running() const {
    MutexLock lock(mutex_);
    return table_.running();
  }
  std::string waiting_text() const {
    MutexLock lock(mutex_);
    return table_.waiting_text(clock_());
  }
  // Called with each complete round, before any node learns of it.
  std::function<void(const launch::membership::Participants&)> on_round;

 private:
  friend class MemoryNode;
  struct EndOfRound {
    launch::RoundEnd end;
    std::string by;  // the id of the node that reported the fault
  };

  void tick_locked() TUTTI_REQUIRES(mutex_) {
    table_.tick(clock_());
    carry_out();
  }
  void end_round(int round, launch::RoundEnd end, const std::string& by) TUTTI_REQUIRES(mutex_) {
    const bool fault = end.kind == launch::RoundEnd::Kind::kFault;
    table_.end(round, fault ? std::optional(end.fault) : std::nullopt, end.again, clock_());
    ends_.emplace(round, EndOfRound{std::move(end), by});
    carry_out();
  }
  void carry_out() TUTTI_REQUIRES(mutex_);

  const launch::membership::Limits limits_;
  const std::function<Time()> clock_;
  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  launch::membership::MembershipTable table_ TUTTI_GUARDED_BY(mutex_);
  std::map<std::string, MemoryNode*> nodes_ TUTTI_GUARDED_BY(mutex_);  // by id
  std::map<int, EndOfRound> ends_ TUTTI_GUARDED_BY(mutex_);            // by round
  std::map<int, std::set<std::string>> done_ TUTTI_GUARDED_BY(mutex_), leaving_ TUTTI_GUARDED_BY(mutex_);
};

class MemoryNode final : public launch::Rendezvous {
 public:
  MemoryNode(MemoryJob& job, std::string id, launch::NodesOptions options)
      : job_(job), id_(std::move(id)), options_(std::move(options)) {
    MutexLock lock(job_.mutex_);
    job_.nodes_[id_] = this;
  }
  ~MemoryNode() override {
    MutexLock lock(job_.mutex_);
    job_.nodes_.erase(id_);
  }

  Result<launch::Round> join() override {
    MutexLock lock(job_.mutex_);
    if (visit_ < 0 || round_.node >= 0) next_visit();  // else this is the same request, after a timeout
    eventfd_t ignored;
    if (event_) (void)eventfd_read(event_.get(), &ignored);
    send_request();
    for (const Deadline deadline = Deadline::after(options_.timeout);;) {
      if (assignment_ && assignment_->refused) return sent_home(*assignment_->refused);
      if (assignment_ && !job_.ends_.contains(assignment_->round)) return begin_round();
      if (assignment_) {  // that round is over already
        round_.number = assignment_->round;
        next_visit();
        send_request();
        continue;
      }
      if (deadline.expired()) return deadline.error(job_.table_.waiting_text(job_.clock_()));
      if (interrupted())
        return Error{.code = Code::kAborted, .detail = "interrupted while waiting for the other nodes"};
      job_.changed_.wait_for(lock, kTurn);
      job_.tick_locked();
    }
  }
  int fd() const override {
    MutexLock lock(job_.mutex_);
    if (event_) return event_.get();
    event_ = make_eventfd().or_throw();
    (void)eventfd_write(event_.get(), 1);  // something may have come already
    return event_.get();
  }
  const std::optional<launch::RoundEnd>& next_event() override {
    MutexLock lock(job_.mutex_);
    job_.tick_locked();
    look_for_end();
    return end_;
  }
  const std::optional<launch::RoundEnd>& round_end() const override { return end_; }

  launch::RoundEnd report(const launch::Fault& fault) override {
    MutexLock lock(job_.mutex_);
    look_for_end();
    if (end_) return *end_;
    launch::RoundEnd end{.kind = launch::RoundEnd::Kind::kFault, .fault = fault};
    if (options_.judge) end.verdict = options_.judge(job_.table_.participants().past, fault);
    end.again = end.verdict.restart;
    job_.end_round(round_.number, std::move(end), id_);
    look_for_end();
    return *end_;
  }
  void finished() override {
    MutexLock lock(job_.mutex_);
    look_for_end();
    if (end_) return;
    job_.done_[round_.number].insert(id_);
    if (int(job_.done_[round_.number].size()) == round_.layout.nodes())
      job_.end_round(round_.number, launch::RoundEnd(), id_);
    look_for_end();
  }
  bool dispensable() override {
    return job_.limits_.min < job_.limits_.max && round_.layout.nodes() > job_.limits_.min;
  }
  bool all_have_saved() override {
    MutexLock lock(job_.mutex_);
    job_.leaving_[round_.number].insert(id_);
    return int(job_.done_[round_.number].size() + job_.leaving_[round_.number].size()) >= round_.layout.nodes();
  }
  void leave(Duration) override {
    MutexLock lock(job_.mutex_);
    job_.table_.leave(id_, job_.clock_());
    job_.carry_out();
  }

 private:
  friend class MemoryJob;
  static constexpr auto kTurn = std::chrono::milliseconds(5);

  void next_visit() TUTTI_REQUIRES(job_.mutex_) {
    ++visit_;
    const int last = round_.number;
    round_ = launch::Round{.number = last, .node = -1};
    assignment_.reset();
    end_.reset();
  }
  void send_request() TUTTI_REQUIRES(job_.mutex_) {
    job_.table_.request_join({.id = id_,
                              .visit = visit_,
                              .wanted = options_.node,
                              .min = options_.min_nodes,
                              .max = options_.nodes,
                              .port = options_.master_port,
                              .last_round = round_.number,
                              .note = {.ranks = options_.counts.here,
                                       .listed = options_.counts.all,
                                       .host = options_.host,
                                       .about = options_.about}},
                             job_.clock_());
    job_.carry_out();
  }
  Result<launch::Round> begin_round() TUTTI_REQUIRES(job_.mutex_) {
    const launch::membership::Participants& participants = job_.table_.participants();
    round_ = launch::Round{.number = participants.round,
                           .layout = launch::Layout{.counts = {}, .node = assignment_->node},
                           .node = assignment_->node,
                           .master_port = participants.nodes.front().port,
                           .restarts_used = int(participants.past.size())};
    for (const auto& node : participants.nodes) {
      round_.layout.counts.push_back(node.note.ranks);
      round_.nodes.push_back({.host = node.note.host, .ranks = node.note.ranks, .about = node.note.about});
    }
    return round_;
  }
  Error sent_home(Error error) TUTTI_REQUIRES(job_.mutex_) {
    const auto last = job_.ends_.rbegin();
    if (error.code == Code::kAborted && last != job_.ends_.rend()) end_ = last->second.end;
    assignment_.reset();
    return error;
  }
  bool interrupted() const {
    pollfd fd{options_.interrupt, POLLIN, 0};
    return options_.interrupt >= 0 && ::poll(&fd, 1, 0) > 0;
  }
  void look_for_end() TUTTI_REQUIRES(job_.mutex_) {
    const auto ended = job_.ends_.find(round_.number);
    if (end_ || round_.node < 0 || ended == job_.ends_.end()) return;
    end_ = ended->second.end;
    end_->mine = ended->second.by == id_ && end_->kind == launch::RoundEnd::Kind::kFault;
  }

  MemoryJob& job_;
  const std::string id_;
  const launch::NodesOptions options_;
  mutable Fd event_;  // once it is asked for; as the other members, guarded by the mutex of the job
  int visit_ = -1;
  launch::Round round_{.number = -1, .node = -1};  // node -1: it takes part in none
  std::optional<launch::membership::Assignment> assignment_;
  std::optional<launch::RoundEnd> end_;
};

inline std::unique_ptr<launch::Rendezvous> MemoryJob::open(const std::string& id, launch::NodesOptions options) {
  if (options.min_nodes == 0) options.min_nodes = options.nodes;
  return std::make_unique<MemoryNode>(*this, id, std::move(options));
}

inline void MemoryJob::carry_out() {
  using Kind = launch::membership::MembershipStep::Kind;
  const auto assign = [&](const std::string& id, launch::membership::Assignment assignment) TUTTI_REQUIRES(mutex_) {
    if (const auto node = nodes_.find(id); node != nodes_.end()) node->second->assignment_ = std::move(assignment);
  };
  bool any = false;
  for (auto steps = table_.take(); !steps.empty(); steps = table_.take()) {
    any = true;
    for (launch::membership::MembershipStep& step : steps) {
      switch (step.kind) {
        case Kind::kSay:
          break;
        case Kind::kComplete:
          if (on_round) on_round(step.participants);
          for (std::size_t node = 0; node < step.participants.nodes.size(); ++node)
            assign(step.participants.nodes[node].id,
                   {.round = step.participants.round, .node = int(node), .refused = {}});
          break;
        case Kind::kRefuse:
          for (const launch::membership::JoinRequest& who : step.who) assign(who.id, {.refused = step.error});
          break;
        case Kind::kEndRound:
          ends_.emplace(step.round, EndOfRound{{.kind = launch::RoundEnd::Kind::kMembership,
                                                .again = true,
                                                .text = step.text,
                                                .gentle = step.gentle},
                                               {}});
          break;
        case Kind::kFail: {
          launch::RoundEnd end{.kind = launch::RoundEnd::Kind::kFault, .fault = {.text = step.text}};
          table_.end(step.round, end.fault, false, clock_());
          ends_.emplace(step.round, EndOfRound{std::move(end), {}});
          break;
        }
      }
    }
  }
  if (!any) return;
  for (const auto& [id, node] : nodes_)
    if (node->event_) (void)eventfd_write(node->event_.get(), 1);
  changed_.notify_all();
}

}  // namespace tutti::test
