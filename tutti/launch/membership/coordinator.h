#pragma once
// The coordinator of a job: a thread that takes the notes of all agents out of the store, hears their heartbeats,
// maintains the membership table (membership.h), and sends every node its assignment.
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/mutex.h"
#include "tutti/launch/membership/failover.h"
#include "tutti/launch/membership/heartbeat.h"
#include "tutti/launch/membership/membership.h"
#include "tutti/store/store.h"

namespace tutti::launch::membership {

struct CoordinatorOptions {
  Limits limits;
  std::string id;          // of the coordinator's own agent
  std::string host;        // its name
  std::string address;     // numeric, at which the others reach it
  std::uint16_t port = 0;  // for heartbeats, if it is free
  transport::Credentials credentials;
  Judge judge;
  StoreServer* server = nullptr;  // if this agent serves the store too; outlives the coordinator
  std::shared_ptr<Vote> vote;     // with a server
  std::string predecessor;        // the id of the last coordinator, if it will never come back: we serve its store now
  // The store is an arbiter: it outlives all nodes, so what they say there tells dead nodes from nodes that the
  // coordinator merely cannot hear. It is not the store of the ranks.
  bool arbiter = false;
  std::function<void(const std::string&)> say;  // from the thread
};

class Coordinator {
 public:
  // Claims the part by a compare_set on keys::kCoordinator, following `before` (none: nobody had it). Null: another
  // agent was faster. `store` is its own handle.
  static Result<std::unique_ptr<Coordinator>> claim(std::unique_ptr<Store> store, CoordinatorOptions options,
                                                    const std::optional<std::string>& before);
  ~Coordinator();

  const CoordinatorAddress& who() const { return me_; }
  // Another agent coordinates now, or the store is lost.
  bool is_over() const { return over_; }
  // This agent serves the store, and too few of the nodes answer: it may decide nothing.
  bool is_cut_off() const { return primary_ && primary_->is_cut_off(); }
  // Until all others have left or are lost; false: at the deadline some had not.
  bool wait_for_others(Deadline deadline);
  // Until all others that were refused have read why, or are lost, or the deadline passes.
  void wait_for_readers(Deadline deadline);

 private:
  Coordinator(std::unique_ptr<Store> store, CoordinatorOptions options, CoordinatorAddress me,
              std::unique_ptr<HeartbeatCenter> center);
  Status resume();
  void run();
  bool take_notes();  // false: the store is lost
  bool is_replaced();
  void read_note(const std::string& text);
  void look_for_end();
  void look_for_silent();
  void look_for_suspected();
  void show_life();
  void ask_arbiter();
  void carry_out(MembershipStep step);
  void refuse(const MembershipStep& step);
  void check_readers();
  void expect_others();
  void count_others();
  void assign_all(const Participants& participants);
  void end_round(const MembershipStep& step);
  void inform_waiting();
  template <class Call>
  auto insist(Call call) -> decltype(call());

  const std::unique_ptr<Store> store_;
  const CoordinatorOptions options_;
  const CoordinatorAddress me_;
  const std::unique_ptr<HeartbeatCenter> center_;
  std::unique_ptr<FailoverPrimary> primary_;
  MembershipTable table_;
  std::map<std::string, std::string> unread_;  // nodes that were refused, and the keys that say so
  Clock::time_point informed_{};
  std::string waiting_text_;
  Clock::time_point asked_{};
  std::int64_t beats_ = 0;  // of keys::alive
  // With an arbiter: nodes that fell silent, and since when; behind a cut they may live.
  std::map<std::string, Clock::time_point> missing_;
  std::atomic<bool> stop_{false}, over_{false};
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::size_t others_ TUTTI_GUARDED_BY(mutex_) = 0, readers_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace tutti::launch::membership
