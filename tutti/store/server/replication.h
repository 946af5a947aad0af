#pragma once
// The failover of the store: one of two servers, a primary or its standby. Private to store/server/; StoreServer
// (server.h) says what it does for its callers, docs/dev/store.md proves that the two never both serve.
//
// The primary sends *entries* (what changed) as they happen; the standby carries them out. Both send *heartbeats*, each
// with a stamp of the sender's clock and the echo of the last stamp it received, and the number of entries so far.
#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "tutti/base/clock.h"
#include "tutti/base/mutex.h"
#include "tutti/store/server/connection.h"
#include "tutti/store/server/server.h"
#include "tutti/store/shared_table.h"
#include "tutti/store/wire.h"
#include "tutti/transport/event_loop.h"

namespace tutti::store {

inline constexpr Duration kHeartbeatEvery = std::chrono::milliseconds(250);
// For this long after the last echo a closed connection proves that the other process has ended. Once nothing was heard
// for this long, serve_alone() is allowed. The proof rests on both being the same number.
inline constexpr Duration kContactLimit = std::chrono::milliseconds(2500);

// What one server knows of the other from its heartbeats. Pure: times are arguments. Because heartbeats are echoed,
// each server knows the latest moment of its own clock at which the other was still running and in contact (`echoed_`),
// however long anything was under way.
class Contact {
 public:
  wire::Heartbeat next_heartbeat(std::uint64_t count, Clock::time_point moment) const;
  void on_heartbeat(const wire::Heartbeat& heartbeat, Clock::time_point moment);
  // Anything else came from the other server.
  void on_traffic(Clock::time_point moment) { heard_at_ = moment; }

  // Whether a connection that closes now was closed by the other's end.
  bool closing_proves_exit(Clock::time_point moment) const;
  // How long nothing was heard, if that is too short for serve_alone().
  std::optional<Duration> heard_too_recently(Clock::time_point moment) const;

 private:
  static std::int64_t stamp_of(Clock::time_point moment);

  std::int64_t last_stamp_ = 0;  // of the other
  std::int64_t echoed_ = 0;      // of ours
  Clock::time_point heard_at_{};
};

// A standby's connection to its primary, once it has the copy.
struct Upstream {
  std::unique_ptr<Connection> connection;
  std::shared_ptr<SharedTable> table;
  std::uint64_t carried_out = 0;
  Contact contact;
  transport::Address primary;
};

// Lets the primary send a copy of its table; returns once it is complete and the two are in contact.
Result<Upstream> copy_from(const transport::Address& primary, const transport::Credentials& credentials,
                           Deadline deadline);

// Whether nothing listens at the primary's port any more. Blocks for a second at most.
bool is_gone(const transport::Address& primary);

// Threads: the server's, but for those that say otherwise.
class Replication {
 public:
  // `address`: where this server listens, for messages.
  Replication(transport::EventLoop& loop, SharedTable& table, Clients& clients, transport::Address address)
      : loop_(loop), table_(table), clients_(clients), address_(std::move(address)) {}
  // Before start(): this server is the standby of `upstream`, whose table is the server's.
  void become_standby(Upstream upstream);
  void start();

  // Any thread; StoreServer describes them.
  StoreRole role() const { return role_.load(); }
  Status serve_alone();
  bool in_doubt() const;
  // The server ends: lost connections mean nothing any more.
  void stop() { stopped_.store(true); }

  // A primary that waits for a decision takes calls, and holds their answers.
  bool takes_calls() const {
    return role_ == StoreRole::kPrimary || (role_ == StoreRole::kUndecided && primary_ == transport::Address{});
  }
  // Once in each turn of the loop: carries out serve_alone(), sends the entries of this turn.
  void carry_out_decision();
  void send_entries();

  // A primary's standby is one of the server's connections.
  void adopt_standby(Connection& connection);
  bool is_standby(const Connection& connection) const { return &connection == standby_; }
  Status obey_standby(const wire::Frame& frame);
  void lose_standby(const Error& why);

 private:
  void send_heartbeat();
  void on_upstream();
  Status read_upstream();
  void close_upstream();
  void lose_upstream(const Error& why);
  bool connection_proves_exit(const Error& why);
  void take_over(const std::string& why);
  void continue_alone(const std::string& why);
  void demote(const std::string& why);

  transport::EventLoop& loop_;
  SharedTable& table_;
  Clients& clients_;
  const transport::Address address_;
  std::atomic<StoreRole> role_{StoreRole::kPrimary};
  std::atomic<bool> stopped_{false};
  mutable Mutex mutex_;
  Contact contact_ TUTTI_GUARDED_BY(mutex_);
  bool paired_ TUTTI_GUARDED_BY(mutex_) = false;   // a primary whose standby has a whole copy, or a standby
  bool decided_ TUTTI_GUARDED_BY(mutex_) = false;  // this side serves alone, and listens to the other no more

  Connection* standby_ = nullptr;
  std::uint64_t sent_ = 0;  // entries, to the standby
  std::unique_ptr<Connection> upstream_;
  std::uint64_t carried_out_ = 0;  // entries, from upstream
  transport::Address primary_;     // of a standby
  bool farewell_heard_ = false;
  transport::EventLoop::Timer heartbeat_timer_;
};

}  // namespace tutti::store
