// One thread, one epoll loop. A connection is first *half open*: a ServerHandshake reads its few fixed bytes. Let in,
// it is a StoreConnection: frames become requests to the table, and the table's answers, to it or to others, become
// frames.
//
// Half-open connections are the only thing that a stranger can make us keep, so there are at most 64, for 5 s each.
// When all places are taken, the oldest is dropped if it has dawdled (a handshake takes a millisecond; a slow loris is
// always the oldest), and new ones stay in the kernel's backlog until then: a thousand honest ranks that arrive at once
// just queue.
#include "tutti/store/store_server.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <list>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tutti/base/log.h"
#include "tutti/store/memory_store.h"
#include "tutti/store/shared_table.h"
#include "tutti/store/store_connection.h"
#include "tutti/transport/event_loop.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

constexpr std::size_t kMaxHalfOpen = 64;
constexpr Duration kHandshakeLimit = std::chrono::seconds(5);
constexpr Duration kCrowdPatience = std::chrono::milliseconds(500);  // for a half-open connection while others queue
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);    // when this process may open no more descriptors
constexpr Duration kLastWords = std::chrono::seconds(1);             // for answers under way when the server ends
constexpr std::size_t kMaxOpenCalls = 1024;                          // of one client
constexpr int kRefusalsShown = 5;                                    // lines on the log in each window
constexpr Duration kRefusalWindow = std::chrono::seconds(10);

}  // namespace

class StoreServer::Thread {
 public:
  Thread(Listener listener, Credentials credentials, std::unique_ptr<EventLoop> loop)
      : credentials_(std::move(credentials)), loop_(std::move(loop)), address_(listener.address) {
    arriving_listeners_.push_back(std::move(listener));
  }
  void start();
  void stop();
  void add(Listener listener);
  const Address& address() const { return address_; }
  const std::shared_ptr<SharedTable>& table() const { return table_; }
  Counts counts() const { return {let_in_.load(), turned_away_.load(), dropped_.load(), calls_.load()}; }

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
  void deliver(std::vector<Table::Answer> answers);
  void send(StoreConnection& connection);
  void drop(int fd, const Error& why);

  const Credentials credentials_;
  std::unique_ptr<EventLoop> loop_;
  const Address address_;
  std::shared_ptr<SharedTable> table_ = std::make_shared<SharedTable>();
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> let_in_{0}, turned_away_{0}, dropped_{0}, calls_{0};
  std::mutex arriving_mutex_;
  std::vector<Listener> arriving_listeners_;  // guarded by arriving_mutex_

  // Below: the thread's own.
  std::list<Listener> listeners_;
  bool paused_ = false;
  EventLoop::Timer resume_timer_;
  HalfOpens half_open_;  // oldest first
  std::unordered_map<int, std::unique_ptr<StoreConnection>> connections_;
  std::unordered_map<Table::Ticket, Owner> owners_;
  std::vector<std::pair<int, Error>> doomed_;  // to drop after the batch of events, when nobody looks at them
  Clock::time_point refusal_window_{};
  int refusals_in_window_ = 0;
};

// ---- life ----

void StoreServer::Thread::start() {
  table_->serve([loop = loop_.get()] { loop->wake(); });
  sigset_t all, before;  // signals are for the program's own threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "tutti-store");
}

void StoreServer::Thread::stop() {
  table_->close(Error{.code = Code::kAborted, .detail = "the store of this process has been closed"});
  stop_.store(true);
  loop_->wake();
  thread_.join();
  table_->serve({});
  for (const auto& listener : listeners_)
    if (listener.address.is_unix()) (void)::unlink(listener.address.path.c_str());
}

void StoreServer::Thread::add(Listener listener) {
  const std::lock_guard lock(arriving_mutex_);
  arriving_listeners_.push_back(std::move(listener));
  loop_->wake();
}

void StoreServer::Thread::run() {
  adopt_listeners();
  while (!stop_.load()) {
    if (const Status status = loop_->run_once(); !status.ok()) {
      log::error("the store stops: " + to_string(status.error()));
      table_->close(status.error());
      break;
    }
    adopt_listeners();
    deliver(table_->take_answers());
    for (const auto& [fd, why] : std::exchange(doomed_, {})) drop(fd, why);
  }
  say_goodbye();
}

void StoreServer::Thread::adopt_listeners() {
  const std::lock_guard lock(arriving_mutex_);
  for (auto& arriving : arriving_listeners_) {
    const Listener& listener = listeners_.emplace_back(std::move(arriving));
    const Status added = loop_->add(listener.fd.get(), paused_ ? 0U : std::uint32_t(EPOLLIN),
                                    [this, &listener](std::uint32_t) { take_connections(listener); });
    if (!added.ok())
      log::error("the store cannot serve " + to_string(listener.address) + ": " + to_string(added.error()));
  }
  arriving_listeners_.clear();
}

// Answers already given still reach their clients; nothing new is read.
void StoreServer::Thread::say_goodbye() {
  deliver(table_->take_answers());
  const Deadline deadline = Deadline::after(kLastWords);
  for (auto& [fd, connection] : connections_) {
    while (connection->has_output()) {
      if (!connection->flush().ok()) break;
      const auto writable = connection->has_output() ? wait_writable(fd, deadline) : Result<bool>(true);
      if (!writable.ok() || !*writable) break;
    }
  }
  connections_.clear();
  half_open_.clear();
}

// ---- before the handshake ----

void StoreServer::Thread::take_connections(const Listener& listener) {
  while (make_room()) {
    auto fd = accept(listener);
    if (!fd.ok()) {
      log::warn("the store: " + to_string(fd.error()));
      return pause(now() + kAcceptPause);
    }
    if (!*fd) return;
    const int number = fd->get();
    const auto entry = half_open_.emplace(
        half_open_.end(),
        HalfOpen{
            std::move(*fd), ServerHandshake(credentials_, Role::kStore), to_string(peer_address(number)), now(), {}});
    entry->limit = loop_->at(entry->since + kHandshakeLimit, [this, entry] {
      turn_away(entry, Error{.code = Code::kRefused, .detail = "it did not finish the handshake within 5 s"});
    });
    if (const Status added = loop_->add(number, EPOLLIN, [this, entry](std::uint32_t) { advance(entry); }); !added.ok())
      turn_away(entry, added.error());
  }
  pause(half_open_.front().since + kCrowdPatience);
}

bool StoreServer::Thread::make_room() {
  if (half_open_.size() < kMaxHalfOpen) return true;
  if (now() - half_open_.front().since < kCrowdPatience) return false;
  turn_away(half_open_.begin(),
            Error{.code = Code::kRefused, .detail = "it dawdled in the handshake while others waited"});
  return true;
}

void StoreServer::Thread::pause(Clock::time_point until) {
  if (paused_) return;
  paused_ = true;
  for (const auto& listener : listeners_) (void)loop_->modify(listener.fd.get(), 0);
  resume_timer_ = loop_->at(until, [this] { resume(); });
}

void StoreServer::Thread::resume() {
  if (!paused_) return;
  paused_ = false;
  loop_->cancel(resume_timer_);
  for (const auto& listener : listeners_) (void)loop_->modify(listener.fd.get(), EPOLLIN);
}

void StoreServer::Thread::advance(HalfOpens::iterator half_open) {
  const auto finished = half_open->handshake.advance(half_open->fd.get());
  if (!finished.ok()) return turn_away(half_open, finished.error());
  if (*finished) let_in(half_open);
}

void StoreServer::Thread::turn_away(HalfOpens::iterator half_open, const Error& why) {
  turned_away_.fetch_add(1);
  if (now() - refusal_window_ > kRefusalWindow) {
    if (refusals_in_window_ > kRefusalsShown)
      log::warn("the store turned away " + std::to_string(refusals_in_window_ - kRefusalsShown) + " more connections");
    refusal_window_ = now();
    refusals_in_window_ = 0;
  }
  const std::string line = "the store turned away " + half_open->peer + ": " + why.detail;
  if (why.code == Code::kPeerLost) {
    log::debug(line);
  } else if (++refusals_in_window_ <= kRefusalsShown) {
    log::warn(line);
  }
  loop_->remove(half_open->fd.get());
  loop_->cancel(half_open->limit);
  half_open_.erase(half_open);
  resume();
}

// ---- after it ----

void StoreServer::Thread::let_in(HalfOpens::iterator half_open) {
  let_in_.fetch_add(1);
  loop_->cancel(half_open->limit);
  const int fd = half_open->fd.get();
  loop_->remove(fd);
  const int rank = half_open->handshake.hello().rank;
  auto connection = std::make_unique<StoreConnection>(
      std::move(half_open->fd), (rank < 0 ? "" : "rank " + std::to_string(rank) + " at ") + half_open->peer);
  half_open_.erase(half_open);
  resume();
  if (loop_->add(fd, EPOLLIN, [this, fd](std::uint32_t events) { on_ready(fd, events); }).ok())
    connections_.emplace(fd, std::move(connection));
}

void StoreServer::Thread::on_ready(int fd, std::uint32_t events) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  StoreConnection& connection = *found->second;
  if (events & EPOLLOUT) send(connection);
  if (events & ~std::uint32_t(EPOLLOUT)) {
    const Status served = serve(connection);
    if (!served.ok()) doomed_.emplace_back(fd, served.error());
  }
}

// One read per event: level-triggered epoll comes back for the rest, after the others had their turn.
Status StoreServer::Thread::serve(StoreConnection& connection) {
  if (!TUTTI_TRY(connection.reader().read(connection.fd()))) return {};
  while (const auto frame = TUTTI_TRY(connection.reader().next())) TUTTI_TRY(obey(connection, *frame));
  return {};
}

Status StoreServer::Thread::obey(StoreConnection& connection, const wire::Frame& frame) {
  const auto open = connection.open_calls.find(frame.id);
  if (frame.kind == std::uint8_t(wire::Kind::kProgress) || frame.kind == std::uint8_t(wire::Kind::kCancel)) {
    const bool cancel = frame.kind == std::uint8_t(wire::Kind::kCancel);
    Missing missing;
    if (open != connection.open_calls.end()) {
      missing = table_->missing(open->second);
      // A thread of this process may have answered a moment ago; then the answer is in the outbox and goes first.
      const bool crossed = cancel && !table_->withdraw(open->second);
      if (crossed) {
        deliver(table_->take_answers());
      } else if (cancel) {
        owners_.erase(open->second);
        connection.open_calls.erase(open);
      }
    }
    const auto kind = cancel ? wire::Kind::kCancelled : wire::Kind::kMissing;
    TUTTI_TRY(
        connection.queue(frame.id, std::uint8_t(kind), std::make_shared<const std::string>(wire::body_of(missing))));
    send(connection);
    return {};
  }
  StoreRequest request = TUTTI_TRY(wire::parse_request(frame));
  if (open != connection.open_calls.end()) return Error{.code = Code::kCorrupt, .detail = "two calls under one id"};
  if (connection.open_calls.size() >= kMaxOpenCalls)
    return Error{.code = Code::kLimit, .detail = "too many open calls"};
  calls_.fetch_add(1);
  const Table::Ticket ticket = table_->new_ticket();
  connection.open_calls.emplace(frame.id, ticket);
  owners_.emplace(ticket, Owner{connection.fd(), frame.id});
  deliver(table_->submit(ticket, std::move(request)));
  return {};
}

void StoreServer::Thread::deliver(std::vector<Table::Answer> answers) {
  for (const auto& answer : answers) {
    const auto body = std::make_shared<const std::string>(wire::body_of(answer.reply));
    for (const Table::Ticket ticket : answer.tickets) {
      const auto owner = owners_.find(ticket);
      if (owner == owners_.end()) continue;  // its client has gone
      const auto [fd, id] = owner->second;
      owners_.erase(owner);
      StoreConnection& connection = *connections_.find(fd)->second;
      connection.open_calls.erase(id);
      if (const Status queued = connection.queue(id, wire::kind_of(answer.reply), body); !queued.ok())
        doomed_.emplace_back(fd, queued.error());
      send(connection);
    }
  }
}

// A failure shows again as a hang-up event, which ends the connection from on_ready().
void StoreServer::Thread::send(StoreConnection& connection) {
  (void)connection.flush().ok();
  if (connection.has_output() == connection.wants_write) return;
  connection.wants_write = connection.has_output();
  (void)loop_->modify(connection.fd(), EPOLLIN | (connection.wants_write ? std::uint32_t(EPOLLOUT) : 0U));
}

void StoreServer::Thread::drop(int fd, const Error& why) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  StoreConnection& connection = *found->second;
  if (why.code != Code::kPeerLost) {
    dropped_.fetch_add(1);
    log::warn("the store dropped " + connection.peer() + ": " + to_string(why));
  }
  for (const auto& [id, ticket] : connection.open_calls) {
    table_->withdraw(ticket);
    owners_.erase(ticket);
  }
  loop_->remove(fd);
  connections_.erase(found);
}

// ---- the handle ----

StoreServer::StoreServer(std::unique_ptr<Thread> thread) : thread_(std::move(thread)) {}
StoreServer::~StoreServer() { thread_->stop(); }

Result<std::unique_ptr<StoreServer>> StoreServer::start(const Address& bind, Credentials credentials) {
  Listener listener = TUTTI_TRY(listen(bind));
  auto loop = TUTTI_TRY(EventLoop::create());
  auto thread = std::make_unique<Thread>(std::move(listener), std::move(credentials), std::move(loop));
  thread->start();
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(thread)));
}

Address StoreServer::address() const { return thread_->address(); }

Result<Address> StoreServer::also_listen(const Address& bind) {
  Listener listener = TUTTI_TRY(listen(bind));
  const Address address = listener.address;
  thread_->add(std::move(listener));
  return address;
}

std::unique_ptr<Store> StoreServer::local() { return std::make_unique<MemoryStore>(thread_->table()); }

StoreServer::Counts StoreServer::counts() const { return thread_->counts(); }

}  // namespace tutti
