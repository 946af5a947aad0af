#pragma once
// Failover of the job's store. Two nodes have it: the *primary* serves it and coordinates, the *standby* keeps a copy.
// When one of them is lost, the votes of the nodes decide whether the other continues; votes travel with the
// heartbeats. That the other's process has ended is seen by the stores themselves (docs/dev/store.md). A node that is
// started again at a former address of the store is redirected to the present one.
//
// Every agent has one vote in each round. It gives it to the primary when that one asks for it, because its standby is
// silent; or to the standby, when the agent itself has lost the primary; whichever comes first. Of N nodes the primary
// continues with N/2 votes, the standby with more than N/2. They never both do: that would take more than N votes.
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/mutex.h"
#include "tutti/launch/membership/heartbeat.h"
#include "tutti/store/server/server.h"

namespace tutti::launch::membership {

// The vote of one agent. Threads: any.
class Vote {
 public:
  // Whether this agent's vote in the round is for `candidate`, given now or before. In earlier rounds it has none left.
  bool give(std::int32_t round, std::uint64_t candidate);

 private:
  Mutex mutex_;
  std::int32_t round_ TUTTI_GUARDED_BY(mutex_) = -1;
  std::uint64_t candidate_ TUTTI_GUARDED_BY(mutex_) = 0;
};

// Who may vote: the agents of a round that both stores know of.
struct Voters {
  std::int32_t round = -1;
  std::vector<std::uint64_t> members;

  static Voters of(const Participants& participants);
  std::size_t count(const std::set<std::uint64_t>& votes) const;  // of members
  bool enough_for_primary(std::size_t votes) const { return 2 * votes >= members.size(); }
  bool enough_for_standby(std::size_t votes) const { return 2 * votes > members.size(); }
};

// Calls a function again and again from a thread of its own.
class Ticker {
 public:
  Ticker(Duration period, std::function<void()> function);
  ~Ticker();  // waits for a call that is under way

 private:
  Mutex mutex_;
  std::condition_variable_any stopped_;
  bool stop_ TUTTI_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Lets the store continue without its standby, once that is silent and half of the nodes vote for it. Threads: any.
class FailoverPrimary {
 public:
  // All of them outlive it. `self`: the number of this agent.
  FailoverPrimary(StoreServer& server, HeartbeatCenter& center, Vote& vote, std::uint64_t self,
                  std::function<void(const std::string&)> say);

  // Who is asked from now on. Only once both stores have the participants of that round.
  void set_voters(Voters voters);
  // The standby is silent, and so are too many others: the store answers nobody, and agents that count on this node
  // have been told that they are out.
  bool is_cut_off() const { return cut_off_; }

 private:
  void turn();

  StoreServer& server_;
  HeartbeatCenter& center_;
  Vote& vote_;
  const std::uint64_t self_;
  const std::function<void(const std::string&)> say_;
  Mutex mutex_;
  Voters voters_ TUTTI_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> doubt_since_;  // of the ticker
  std::atomic<bool> cut_off_{false};
  Ticker ticker_;  // last: it ends first
};

struct StandbyOptions {
  std::uint64_t self = 0;  // the number of this agent
  std::string host;        // numeric, at which the others reach it
  transport::Address primary;
  transport::Credentials credentials;
  HeartbeatTimes times;
  std::shared_ptr<Vote> vote;
  std::function<void(const std::string&)> say;  // from its thread
};

// Keeps the copy. Threads: any.
class FailoverStandby {
 public:
  // Returns once the copy is complete. Listens at the port that the primary has, if that is free here; and takes votes
  // at the same number.
  static Result<std::unique_ptr<FailoverStandby>> follow(StandbyOptions options, Deadline deadline);

  const transport::Address& primary() const { return options_.primary; }
  transport::Address address() const { return server_->address(); }
  const std::string& votes_address() const { return votes_->address(); }
  StoreRole role() const { return server_->role(); }
  // This agent has lost the primary, and votes for itself. `ended`: the primary's host says that its agent has ended.
  // In a job of two nodes, which have no majority, that is enough if nothing listens there any more either.
  void primary_is_lost(bool ended);
  // Once it serves: from now on it is a store as any.
  std::unique_ptr<StoreServer> release();
  void turn();  // decides if there is anything to decide; its thread calls it ten times a second

 private:
  FailoverStandby(StandbyOptions options, std::unique_ptr<StoreServer> server, std::unique_ptr<HeartbeatCenter> votes);
  bool may_take_over(const Voters& voters);
  bool primary_has_ended() const;

  const StandbyOptions options_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<HeartbeatCenter> votes_;
  std::atomic<bool> lost_{false}, ended_{false};
  std::unique_ptr<Ticker> ticker_;
};

// Leads from the former addresses of the job's store to the present one: a node that took the store over checks whether
// a store of this job is served at a former address (by a node that was started again with the old command), and
// leaves the new address there. Threads: one, besides its own.
class Redirect {
 public:
  // `former`: where the store was; `here`: where it is. The job's own table has keys::kFormer already.
  Redirect(std::vector<transport::Address> former, const transport::Address& here, transport::Credentials credentials,
           std::function<void(const std::string&)> say);
  ~Redirect() { ending_ = true; }  // may take a second

 private:
  struct Former {
    transport::Address address;
    Clock::time_point next{};
  };
  static std::vector<Former> list_of(std::vector<transport::Address> addresses);
  void turn();
  void check(Former& former);

  std::vector<Former> former_;  // of the ticker
  const std::string here_;
  const transport::Credentials credentials_;
  const std::function<void(const std::string&)> say_;
  std::atomic<bool> ending_{false};
  Ticker ticker_;  // last: it ends first
};

}  // namespace tutti::launch::membership
