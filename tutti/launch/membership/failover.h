#pragma once
// The two nodes that have the job's store: the *incumbent* serves it and coordinates, the *successor* keeps a copy.
// When one of them is lost, these decide whether the other goes on: by the voices of the nodes (ballot.h), which come
// with the heartbeats. That the other's process has ended is seen by the stores themselves (docs/store.md).
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tutti/base/mutex.h"
#include "tutti/launch/membership/heartbeat.h"
#include "tutti/launch/membership/ticker.h"
#include "tutti/launch/membership/vote.h"
#include "tutti/store/server/server.h"

namespace tutti {

// Lets the store go on without its successor, once that is silent and half of the nodes say so. Threads: any.
class FailoverPrimary {
 public:
  // All of them outlive it. `self`: the number of this agent.
  FailoverPrimary(StoreServer& server, HeartbeatCenter& center, Vote& ballot, std::uint64_t self,
                  std::function<void(const std::string&)> say);

  // Who is asked from now on. Only once the roster of that round is in both stores.
  void set_electorate(Electorate electorate);
  // The successor is silent, and so are too many others: the store answers nobody, and whoever counts on this node has
  // been told that it is out.
  bool is_cut_off() const { return cut_off_; }

 private:
  void turn();

  StoreServer& server_;
  HeartbeatCenter& center_;
  Vote& ballot_;
  const std::uint64_t self_;
  const std::function<void(const std::string&)> say_;
  Mutex mutex_;
  Electorate electorate_ TUTTI_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> doubt_since_;  // of the ticker
  std::atomic<bool> cut_off_{false};
  Ticker ticker_;  // last: it ends first
};

struct FailoverOptions {
  std::uint64_t self = 0;  // the number of this agent
  std::string host;        // numeric, at which the others reach it
  Address primary;
  Credentials credentials;
  HeartbeatTimes times;
  std::shared_ptr<Vote> ballot;
  std::function<void(const std::string&)> say;  // from its thread
};

// Keeps the copy. Threads: any.
class FailoverStandby {
 public:
  // Returns once the copy is complete. Listens where the primary does, by number, if that is free here; and takes
  // voices at the same number.
  static Result<std::unique_ptr<FailoverStandby>> follow(FailoverOptions options, Deadline deadline);

  const Address& primary() const { return options_.primary; }
  Address address() const { return server_->address(); }
  std::string box() const { return box_->address(); }
  StoreRole standing() const { return server_->role(); }
  // This agent has lost the primary, and gives its voice to itself. `ended`: the primary's host says that its agent has
  // ended; for a job of two nodes, where there is no majority, that is enough if nobody serves there either.
  void primary_is_lost(bool ended);
  // Once it serves: from now on it is a store as any.
  std::unique_ptr<StoreServer> release();
  void turn();  // decides if there is anything to decide; its thread calls it ten times a second

 private:
  FailoverStandby(FailoverOptions options, std::unique_ptr<StoreServer> server, std::unique_ptr<HeartbeatCenter> box);
  bool may_go_on(const Electorate& electorate);
  bool primary_has_ended() const;

  const FailoverOptions options_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<HeartbeatCenter> box_;
  std::atomic<bool> lost_{false}, ended_{false};
  std::unique_ptr<Ticker> ticker_;
};

}  // namespace tutti
