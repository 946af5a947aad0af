#pragma once
// The state behind a Group, on one rank: queue, driver, ways to the peers.
//
// Collectives are carried out one after another in the order of submission; sends and receives proceed beside them.
// Whoever holds the driver lock steps them: the calling thread (run(), Work::wait()), else the engine. A call that
// finds the queue empty is carried out on the caller's stack without a queue entry; if that takes long it is handed to
// the engine.
#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/base/mutex.h"
#include "tutti/comm/backends/backend.h"
#include "tutti/comm/cuda/calls.h"
#include "tutti/comm/group/flight.h"
#include "tutti/comm/group/process.h"
#include "tutti/comm/links/planned_calls.h"
#include "tutti/comm/links/point_to_point.h"
#include "tutti/comm/operation.h"
#include "tutti/comm/plans/hosts.h"
#include "tutti/comm/request.h"
#include "tutti/comm/shared_memory/direct.h"

namespace tutti {

constexpr Duration kCompareAfter = std::chrono::seconds(1);

// One operation that was queued. Any thread may read `done`; the rest belongs to the driver until then.
class Submission {
 public:
  Request request;
  CallSite site;  // of the call
  std::uint64_t sequence = 0;
  Operation* operation = nullptr;  // owned, the group's own, or on the stack of the call that waits for it
  std::unique_ptr<Operation> owned;
  cuda::Event ready;                 // of a call on a GPU: where the caller's stream stood
  std::optional<Deadline> deadline;  // from submission
  Clock::time_point traced_since{};  // its turn, if a trace was under way
  bool warned = false;
  Duration compare_after = kCompareAfter;  // of waiting: then the peers' calls are looked up in the store
  std::vector<std::size_t> splits[2];      // own copies: the caller's spans need not outlive submit()
  Status result;                           // valid once done
  std::atomic<bool> done{false};
};

class GroupState : public std::enable_shared_from_this<GroupState> {
 public:
  struct Spec {
    std::string name;
    std::uint64_t id = 1;  // the same on every rank; links are told apart by it
    int rank = 0;
    std::vector<int> global_ranks;  // by rank
    Duration limit{};               // of a call; 0: no limit of its own, the process's
  };
  // Exchanges a text among the members, by rank.
  using Exchange = std::function<Result<std::vector<std::string>>(const std::string& mine)>;
  // Every member calls; opens the ways to the peers.
  static Result<std::shared_ptr<GroupState>> create(std::shared_ptr<Process> process, Spec spec,
                                                    const Exchange& exchange, Deadline deadline);
  ~GroupState();

  const Spec& spec() const { return spec_; }
  int rank() const { return spec_.rank; }
  int size() const { return int(spec_.global_ranks.size()); }
  Process& process() const { return *process_; }
  const std::shared_ptr<Process>& process_ptr() const { return process_; }
  bool is_direct() const { return direct_ != nullptr; }
  const std::string& engine() const { return process_->engine_name; }
  const Selector* selector() const { return selector_.get(); }
  const char* device_engine(const Request& request) const {  // of a call on a GPU
    return cuda_->is_by_nccl(request) ? "nccl" : "staged";
  }
  std::string device() const;  // where this rank computes
  Duration limit() const { return limit_; }
  std::uint64_t next_child() { return ++children_; }

  Status validate(const Request& request) const;  // what is wrong with it, before anything is started
  Status run(const Request& request, CallSite at);
  Result<std::shared_ptr<Submission>> submit(const Request& request, CallSite at);
  // All of them, or, where one cannot be right, none.
  Result<std::vector<std::shared_ptr<Submission>>> submit(std::span<const Request> requests, CallSite at);
  Status wait(Submission& submission);
  Status monitored_barrier(Duration limit);  // in monitored_barrier.cc
  void abort(Error error);
  // Ends the group because an exception drives the caller out while `submission` uses its buffers; returns when it no
  // longer does.
  void abandon(Submission& submission);
  // The last handle goes: waits for what is pending, a while, or ends it at once; then nobody drives the group any
  // more.
  void leave(bool unwinding);
  Status status() const;

  // ProgressThread's side.
  bool try_drive();                   // false if nothing moved or somebody else drives
  void blockers(Blockers& blockers);  // none while others drive, who will notify() the engine when they stop
  bool retire_if_idle();
  void look_again() { unwell_.store(true, std::memory_order_release); }  // something became of a peer
  static Duration earliest_check(const std::vector<std::shared_ptr<GroupState>>& groups);

 private:
  using Entries = std::list<std::shared_ptr<Submission>>;
  GroupState(std::shared_ptr<Process> process, Spec spec) : process_(std::move(process)), spec_(std::move(spec)) {}

  Status open_engine(Deadline deadline);
  Status learn_network(Deadline deadline);
  Status open_nccl(Deadline deadline);
  Error opening_failed(const std::string& engine, Error error) const;
  Error with_cause(Error error) const;
  Result<int> nccl_device() const;
  Result<std::string> nccl_probe(const BackendSetup& setup, int device) const;
  BackendSetup backend_setup(const std::string& engine, Deadline deadline);
  Status mark(Submission& submission);
  void run_alone_on_device(Submission& submission);
  Result<std::unique_ptr<Operation>> start_for_device(const Request& request, std::uint64_t sequence);
  template <class Act>
  static auto guarded(const Act& act) -> decltype(act());
  // An operation that was started; `owned` is null where the group keeps it for the next call of its kind.
  struct Started {
    Operation* operation = nullptr;
    std::unique_ptr<Operation> owned;
    explicit Started(Operation* kept) : operation(kept) {}
    explicit Started(std::unique_ptr<Operation> made) : operation(made.get()), owned(std::move(made)) {}
  };
  Result<Started> make_operation(const Request& request, std::uint64_t sequence);
  Result<Started> start(const Request& request, std::uint64_t sequence);
  bool start(Submission& submission) TUTTI_EXCLUDES(queue_mutex_);
  static Result<Progress> step(Operation& operation);
  bool keeps_core(const Operation& operation, int& tries) const;
  Status run_inline(Operation& operation, const Request& request, std::uint64_t sequence);
  Status hand_over(Operation& operation, const Request& request, std::uint64_t sequence, Deadline deadline);
  std::shared_ptr<Submission> make_submission(const Request& request, CallSite at) const;
  void enqueue(std::span<const std::shared_ptr<Submission>> submissions);
  Entries::iterator remove(Entries& from, Entries::iterator entry);
  bool lock_driver() { return !driver_.test_and_set(std::memory_order_acquire); }
  bool lock_driver_soon();
  void unlock_driver();
  bool drive(bool collectives_too = true);                                             // with the driver lock
  bool end_overdue(Clock::time_point time);                                            // among the calls not started
  bool drive_one(Submission& submission, Clock::time_point time, bool look_at_peers);  // whether it moved (or ended)
  void finish(Submission& submission, Status result);
  struct Trouble {
    Error error;
    Process::Evidence evidence;
  };
  std::optional<Trouble> health(const Operation& operation);  // why this cannot end well, if so
  Trouble trouble_of(Error error) const;                      // of an operation's own error
  std::optional<Trouble> departure_of(int peer) const;        // how a peer on this host went, if it has
  std::optional<Trouble> departure_of_anybody() const;
  bool is_anybody_lost() const;
  Error complete(Error error, const Request& request, std::uint64_t sequence) const;
  bool is_ended() const;
  Status why_ended(const Request& request);
  Status turn_away(const Request& request, CallSite at);  // why_ended(), on record
  bool is_here(int rank) const {
    return process_->world[spec_.global_ranks[rank]].node == process_->world[process_->rank].node;
  }
  bool all_are_here() const { return host_ranks_ == size(); }
  Clock::time_point due(const Submission& submission) const;
  Error overdue(const Submission& submission);
  const char* who_set_limit(const Request& request) const;
  void warn_of_hang(Submission& submission);
  std::optional<Error> compare_calls(Submission& submission);
  // Poisons; the group's error, with the root cause of the job. Calls the store.
  Status fail(Trouble trouble) TUTTI_EXCLUDES(queue_mutex_);
  void tell_of_leaving(bool unwinding);
  std::string store_key(const char* what, int rank) const;
  void learn_of_leaving(Error& error);
  std::string word_of_leaving(int peer) const;  // what a rank of another host said when it left; empty: nothing
  bool has_left(int peer) const;                // in good order
  void ask_who_waits(Error& error);
  std::string stopped_ranks() const;
  std::string seen_of(std::span<const int> late) const;
  Result<std::string> meet_in_store(std::uint64_t number, Deadline deadline) TUTTI_REQUIRES(watch_mutex_);
  std::vector<int> others(std::vector<int> ranks) const;

  std::shared_ptr<Process> process_;
  Spec spec_;
  Duration limit_{};
  SpinPolicy spin_;
  Hosts hosts_;                                        // of the members; none in a group of one
  int host_ranks_ = 1;                                 // members on this host
  std::atomic<std::uint32_t>* poison_word_ = nullptr;  // in the block of this host, if any
  GroupMemory memory_;
  std::unique_ptr<DirectChannel> direct_;
  std::unique_ptr<Backend> backend_;             // carries all CPU memory, if there is one
  std::unique_ptr<cuda::Calls> cuda_;            // the calls on GPUs; loads nothing before the first of them
  Mutex alone_mutex_;                            // they have no driver in a group of one
  std::vector<std::unique_ptr<Link>> links_[2];  // by purpose: collectives, send and recv
  std::vector<Link*> link_pointers_[2];
  std::unique_ptr<Selector> selector_;     // of plans over links; null on the direct path and where an engine carries
  std::unique_ptr<PlannedCalls> planned_;  // likewise
  std::unique_ptr<PointToPoint> point_to_point_;
  std::vector<std::unique_ptr<std::atomic<bool>>> peer_gone_;

  std::shared_ptr<FlightTrack> flight_;  // null: off
  FlightRing* flight_rings_[2] = {};     // its collectives, its exchanges
  FlightRing* flight_ring(Kind kind) const { return flight_rings_[is_point_to_point(kind)]; }
  FlightWay flight_way(const Request& request) const;

  std::atomic_flag driver_;
  std::atomic<int> waiting_{0};      // threads in wait() that drive
  std::atomic<int> pending_{0};      // queued, not finished
  std::atomic<bool> active_{false};  // known to the engine
  std::atomic<std::uint64_t> sequence_{0}, p2p_sequence_{0};
  std::uint64_t children_ = 0;
  Mutex queue_mutex_;
  std::vector<std::shared_ptr<Submission>> fresh_ TUTTI_GUARDED_BY(queue_mutex_);
  std::vector<std::shared_ptr<Submission>> arriving_;  // the driver's: taken from fresh_, with its memory for the next
  Entries queue_;                                      // the driver's: collectives, in order
  Entries exchanges_;                                  // the driver's: sends and receives
  // What hand_over() puts there, kept with its entry, so that a call that waits long allocates nothing. The Submission
  // is in use until the caller has read its result, the entry as long as it is queued.
  const std::shared_ptr<Submission> long_call_ = std::make_shared<Submission>();
  std::atomic<bool> long_call_in_use_{false};
  Entries long_call_entry_{long_call_};  // the driver's
  Blockers blockers_;                    // the driver's, of one look
  Clock::time_point last_health_{};
  std::atomic<bool> unwell_{false};  // look at the peers at once
  // Not 0: the last handle has gone, and what is pending ends by then.
  std::atomic<Clock::time_point::rep> leave_by_{0};

  Mutex watch_mutex_;  // of monitored_barrier, for the whole call
  std::unique_ptr<Store> watch_ TUTTI_GUARDED_BY(watch_mutex_);
  std::uint64_t watched_ TUTTI_GUARDED_BY(watch_mutex_) = 0;

  std::atomic<bool> poisoned_{false};
  // Held while the root cause is found out: who comes meanwhile waits for the whole story.
  mutable Mutex poison_mutex_;
  Status poison_ TUTTI_GUARDED_BY(poison_mutex_);
};

}  // namespace tutti
