#pragma once
// The thread of a StoreServer. Its parts lie in three files: store_server.cc (life, and the door that strangers knock
// at), store_server_calls.cc (what clients ask), store_server_standing.cc (a primary and its follower). Private to
// store/.
#include <atomic>
#include <list>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tutti/base/log.h"
#include "tutti/base/mutex.h"
#include "tutti/store/memory_store.h"
#include "tutti/store/server/connection.h"
#include "tutti/store/server/replication.h"
#include "tutti/store/server/server.h"
#include "tutti/transport/event_loop.h"
#include "tutti/transport/socket.h"

namespace tutti {

// A follower's way to its primary, once it has the copy.
struct Upstream {
  std::unique_ptr<StoreConnection> connection;
  std::shared_ptr<SharedTable> table;
  std::uint64_t carried_out = 0;
  Touch touch;
  Address primary;
};

// Lets the primary give a copy of its table; returns once it is complete, and the two are in touch.
Result<Upstream> copy_from(const Address& primary, const Credentials& credentials, Deadline deadline);

class StoreServerThread {
 public:
  StoreServerThread(Listener listener, Credentials credentials, std::unique_ptr<EventLoop> loop)
      : credentials_(std::move(credentials)), loop_(std::move(loop)), address_(listener.address) {
    arriving_listeners_.push_back(std::move(listener));
  }
  // As a follower: `upstream` leads to the primary at `primary`, whose copy the table holds already.
  StoreServerThread(Listener listener, Credentials credentials, std::unique_ptr<EventLoop> loop, Upstream upstream);
  Status start();
  void stop();
  Result<Address> unix_address();
  const Address& address() const { return address_; }
  const std::shared_ptr<SharedTable>& table() const { return table_; }
  StoreRole standing() const { return standing_.load(); }
  Status decide();
  bool in_doubt();
  StoreServer::Counts counts() const { return {let_in_.load(), turned_away_.load(), dropped_.load(), calls_.load()}; }

 private:
  struct HalfOpen {
    Fd fd;
    ServerHandshake handshake;
    std::string peer;
    Clock::time_point since;
    EventLoop::Timer limit;
  };
  using HalfOpens = std::list<HalfOpen>;
  struct Owner {  // of a ticket
    int fd;
    std::uint32_t id;
  };

  void run();
  void adopt_listeners();
  void say_goodbye();

  void take_connections(const Listener& listener);
  bool make_room();
  void pause(Clock::time_point until);
  void resume();
  void advance(HalfOpens::iterator half_open);
  void turn_away(HalfOpens::iterator half_open, const Error& why);

  void let_in(HalfOpens::iterator half_open);
  void on_ready(int fd, std::uint32_t events);
  Status serve(StoreConnection& connection);
  Status obey(StoreConnection& connection, const wire::Frame& frame);
  Status open_session(StoreConnection& connection, const wire::Frame& frame);
  void deliver(std::vector<Table::Answer> answers);
  void send(StoreConnection& connection);
  void drop(int fd, const Error& why);

  // Between a primary and its follower (store_server_standing.cc).
  void adopt_follower(StoreConnection& connection);
  Status obey_follower(StoreConnection& connection, const wire::Frame& frame);
  void lose_follower(const Error& why);
  void stream_entries();
  void beat();
  void on_upstream();
  Status read_upstream();
  void lose_upstream(const Error& why);
  void take_over(const std::string& why);
  void go_on_alone(const std::string& why);
  void stand_back(const std::string& why);
  void carry_out_decision();
  bool primary_is_gone() const;
  // A primary that waits for a decision takes calls, and holds their answers.
  bool takes_calls() const {
    return standing_ == StoreRole::kPrimary || (standing_ == StoreRole::kUndecided && primary_ == Address{});
  }
  Status queue(StoreConnection& connection, wire::Kind kind, std::string body);

  const Credentials credentials_;
  std::unique_ptr<EventLoop> loop_;
  const Address address_;
  std::shared_ptr<SharedTable> table_ = std::make_shared<SharedTable>();
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<StoreRole> standing_{StoreRole::kPrimary};
  Mutex touch_mutex_;
  Touch touch_ TUTTI_GUARDED_BY(touch_mutex_);
  bool has_other_ TUTTI_GUARDED_BY(touch_mutex_) = false;  // a primary whose follower has a whole copy, or a follower
  bool decided_ TUTTI_GUARDED_BY(touch_mutex_) = false;    // this side goes on, and hears nothing of the other any more
  std::atomic<std::uint64_t> let_in_{0}, turned_away_{0}, dropped_{0}, calls_{0};
  Mutex arriving_mutex_;
  std::vector<Listener> arriving_listeners_ TUTTI_GUARDED_BY(arriving_mutex_);
  Address unix_address_ TUTTI_GUARDED_BY(arriving_mutex_);  // empty: nobody has asked for one

  // Below: the thread's own.
  std::list<Listener> listeners_;
  bool paused_ = false;
  EventLoop::Timer resume_timer_;
  HalfOpens half_open_;  // oldest first
  std::unordered_map<int, std::unique_ptr<StoreConnection>> connections_;
  std::unordered_map<Table::Ticket, Owner> owners_;
  std::unordered_map<std::uint64_t, int> sessions_;  // the connection of each client that has one
  int follower_ = -1;                                // its connection
  std::uint64_t streamed_ = 0;                       // entries sent to it
  bool farewell_heard_ = false;
  EventLoop::Timer beat_timer_;
  std::unique_ptr<StoreConnection> upstream_;
  std::uint64_t carried_out_ = 0;  // entries from upstream
  Address primary_;
  std::vector<std::pair<int, Error>> doomed_;  // to drop after the batch of events, when nobody looks at them
  log::FewWarnings refusals_{"connections that the store turned away"};
};

}  // namespace tutti
