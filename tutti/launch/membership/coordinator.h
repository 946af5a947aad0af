#pragma once
// The coordinator at work: a thread that takes the notes of all agents out of the store, hears their heartbeats, keeps
// the book (gathering.h), and tells everybody where to sit.
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
#include "tutti/launch/membership/membership_table.h"
#include "tutti/launch/membership/round.h"
#include "tutti/store/store.h"

namespace tutti {

struct CoordinatorOptions {
  Limits limits;
  std::string id;          // of the coordinator's own agent
  std::string host;        // its name
  std::string address;     // numeric, at which the others reach it
  std::uint16_t port = 0;  // for heartbeats, if it is free
  Credentials credentials;
  Judge judge;
  StoreServer* server = nullptr;  // where this agent serves the store too; outlives the coordination
  std::shared_ptr<Vote> ballot;   // with a server
  std::string predecessor;        // the id of who coordinated before and never does again, as we serve its store now
  std::function<void(const std::string&)> say;  // from the thread
};

// What a node says in the inbox.
std::string come_note(const JoinRequest& comer);
std::string leave_note(const std::string& id);

// An HMAC over all else that the coordinator says of itself, with a key for this alone that follows from the secret and
// the job: who holds another secret sees that, and it is worth as much for guessing as the proof of the store's
// handshake. It stands in the store, which with etcd lets in whoever reaches it.
std::string proof_of(const Credentials& credentials, const CoordinatorAddress& coordinator);

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
  bool is_cut_off() const { return incumbent_ && incumbent_->is_cut_off(); }
  // Until all others have said goodbye, or are lost; false: at the deadline some had not.
  bool wait_for_others(Deadline deadline);
  // Until all others that were refused have read why, or are lost, or the deadline passes.
  void wait_for_readers(Deadline deadline);

 private:
  Coordinator(std::unique_ptr<Store> store, CoordinatorOptions options, CoordinatorAddress me,
              std::unique_ptr<HeartbeatCenter> center);
  Status resume();
  void run();
  bool take_notes();  // false: the store is lost
  bool is_deposed();
  void read_note(const std::string& text);
  void look_for_end();
  void look_for_silent();
  void look_for_doubted();
  void show_life();
  void ask_witness();
  void carry_out(MembershipStep step);
  void refuse(const MembershipStep& step);
  void look_who_has_read();
  void expect_others();
  void count_others();
  void seat_all(const Participants& roster);
  void end_round(const MembershipStep& step);
  void tell_waiting();
  template <class Call>
  auto insist(Call call) -> decltype(call());

  const std::unique_ptr<Store> store_;
  const CoordinatorOptions options_;
  const CoordinatorAddress me_;
  const std::unique_ptr<HeartbeatCenter> center_;
  std::unique_ptr<FailoverPrimary> incumbent_;
  MembershipTable book_;
  std::map<std::string, std::string> unread_;  // nodes that were refused, and their seats
  Clock::time_point told_{};
  std::string told_words_;
  Clock::time_point asked_{};
  std::int64_t beats_ = 0;                            // of keys::alive
  std::map<std::string, Clock::time_point> missing_;  // lost, since when; behind a cut they may live, says the witness
  std::atomic<bool> stop_{false}, over_{false};
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::size_t others_ TUTTI_GUARDED_BY(mutex_) = 0, readers_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace tutti
