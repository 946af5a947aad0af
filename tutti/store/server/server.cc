// One thread, one epoll loop. A connection is first *half open*: a ServerHandshake reads its few fixed bytes. Then it
// belongs to the Clients (connection.h).
//
// Half-open connections are the only thing that a stranger can make us keep, so there are at most as many as the
// kernel's backlog holds, for 5 s each. When all slots are taken, the oldest is dropped if it is slow (a handshake
// takes a millisecond; a slow loris is always the oldest), and new ones stay in the backlog until then: a thousand
// honest ranks that connect at once just queue, and behind a crowd that says nothing they wait for half a second, or
// two.
#include "tutti/store/server/server.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <thread>
#include <vector>

#include "tutti/base/log.h"
#include "tutti/base/mutex.h"
#include "tutti/base/thread.h"
#include "tutti/store/server/connection.h"
#include "tutti/store/server/replication.h"
#include "tutti/store/shared_table.h"
#include "tutti/transport/event_loop.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace store {
namespace {

constexpr std::size_t kMaxHalfOpen = 512;
constexpr Duration kHandshakeLimit = std::chrono::seconds(5);
constexpr Duration kCrowdPatience = std::chrono::milliseconds(500);  // for a half-open connection while others queue
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);    // when this process may open no more descriptors
constexpr Duration kFlushLimit = std::chrono::seconds(1);            // for answers under way when the server ends

// For messages: a Unix socket's other end has no name, but a process.
std::string peer_text(int fd, const transport::Address& at) {
  const auto process = at.is_unix() ? transport::peer_process(fd) : std::nullopt;
  return process ? "pid " + std::to_string(process->pid) + " at " + to_string(at)
                 : to_string(transport::peer_address(fd));
}

// A part of the files that this process may have.
std::size_t most_half_open() {
  rlimit files{};
  (void)::getrlimit(RLIMIT_NOFILE, &files);
  return std::clamp<std::size_t>(std::size_t(files.rlim_cur) / 4, 1, kMaxHalfOpen);
}

}  // namespace

class ServerThread {
 public:
  ServerThread(transport::Listener listener, transport::Credentials credentials,
               std::unique_ptr<transport::EventLoop> loop, std::shared_ptr<SharedTable> table)
      : credentials_(std::move(credentials)),
        loop_(std::move(loop)),
        address_(listener.address),
        table_(std::move(table)),
        clients_(*loop_, *table_, replication_),
        replication_(*loop_, *table_, clients_, address_) {
    arriving_listeners_.push_back(std::move(listener));
  }
  Status start();
  void stop();
  Result<transport::Address> unix_address();
  const transport::Address& address() const { return address_; }
  const std::shared_ptr<SharedTable>& table() const { return table_; }
  Replication& replication() { return replication_; }
  StoreServer::Counts counts() const {
    return {let_in_.load(), turned_away_.load(), clients_.dropped(), clients_.calls()};
  }

 private:
  struct HalfOpen {
    Fd fd;
    transport::ServerHandshake handshake;
    std::string peer;
    Clock::time_point since;
    transport::EventLoop::Timer limit;
  };
  using HalfOpens = std::list<HalfOpen>;

  void run();
  void adopt_listeners();
  void shut_down();

  void accept_connections(const transport::Listener& listener);
  bool make_room();
  void pause(Clock::time_point until);
  void resume();
  void advance(HalfOpens::iterator half_open);
  void let_in(HalfOpens::iterator half_open);
  void turn_away(HalfOpens::iterator half_open, const Error& why);

  const transport::Credentials credentials_;
  std::unique_ptr<transport::EventLoop> loop_;
  const transport::Address address_;
  const std::shared_ptr<SharedTable> table_;
  Clients clients_;
  Replication replication_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> let_in_{0}, turned_away_{0};
  Mutex arriving_mutex_;
  std::vector<transport::Listener> arriving_listeners_ TUTTI_GUARDED_BY(arriving_mutex_);
  transport::Address unix_address_ TUTTI_GUARDED_BY(arriving_mutex_);  // empty: not asked for yet

  // Below: used by the thread only.
  std::list<transport::Listener> listeners_;
  bool paused_ = false;
  transport::EventLoop::Timer resume_timer_;
  HalfOpens half_open_;  // oldest first
  log::FewWarnings refusals_{"connections that the store turned away"};
};

Status ServerThread::start() {
  table_->serve([loop = loop_.get()] { loop->wake(); });
  thread_ = TUTTI_TRY(start_thread([this] { run(); }));
  pthread_setname_np(thread_.native_handle(), "tutti-store");
  return {};
}

void ServerThread::stop() {
  table_->close(Error{.code = Code::kAborted, .detail = "the store of this process has been closed"});
  replication_.stop();
  stop_.store(true);
  loop_->wake();
  thread_.join();
  table_->serve({});
}

Result<transport::Address> ServerThread::unix_address() {
  const MutexLock lock(arriving_mutex_);
  if (unix_address_.is_unix()) return unix_address_;
  transport::Listener listener = TUTTI_TRY(listen(transport::new_abstract_address()));
  unix_address_ = listener.address;
  arriving_listeners_.push_back(std::move(listener));
  loop_->wake();
  return unix_address_;
}

void ServerThread::run() {
  adopt_listeners();
  replication_.start();
  while (!stop_.load()) {
    if (const Status status = loop_->run_once(); !status.ok()) {
      log::error("the store stops: " + to_string(status.error()));
      table_->close(status.error());
      break;
    }
    adopt_listeners();
    replication_.carry_out_decision();
    clients_.deliver(table_->take_answers());
    replication_.send_entries();
    clients_.drop_marked();
  }
  shut_down();
}

void ServerThread::adopt_listeners() {
  const MutexLock lock(arriving_mutex_);
  for (auto& arriving : arriving_listeners_) {
    const transport::Listener& listener = listeners_.emplace_back(std::move(arriving));
    const Status added = loop_->add(listener.fd.get(), paused_ ? 0U : std::uint32_t(EPOLLIN),
                                    [this, &listener](std::uint32_t) { accept_connections(listener); });
    if (!added.ok())
      log::error("the store cannot serve " + to_string(listener.address) + ": " + to_string(added.error()));
  }
  arriving_listeners_.clear();
}

// Answers already given still reach their clients; nothing new is read.
void ServerThread::shut_down() {
  clients_.deliver(table_->take_answers());
  replication_.send_entries();
  clients_.flush_all(Deadline::after(kFlushLimit));
  // Unlink the listening sockets before closing connections, or a client reconnects to a server that is shutting down.
  for (const auto& listener : listeners_)
    if (listener.address.is_unix() && !transport::is_abstract(listener.address))
      (void)::unlink(listener.address.path.c_str());
  listeners_.clear();
  clients_.close_all();
  half_open_.clear();
}

// ---- before the handshake ----

void ServerThread::accept_connections(const transport::Listener& listener) {
  while (make_room()) {
    auto fd = transport::accept(listener);
    if (!fd.ok()) {
      refusals_.warn("the store: " + to_string(fd.error()));
      return pause(now() + kAcceptPause);
    }
    if (!*fd) return;
    const int number = fd->get();
    const auto entry =
        half_open_.emplace(half_open_.end(), HalfOpen{std::move(*fd),
                                                      transport::ServerHandshake(credentials_, transport::Role::kStore),
                                                      peer_text(number, listener.address),
                                                      now(),
                                                      {}});
    entry->limit = loop_->at(entry->since + kHandshakeLimit, [this, entry] {
      turn_away(entry, Error{.code = Code::kRefused, .detail = "it did not finish the handshake within 5 s"});
    });
    if (const Status added = loop_->add(number, EPOLLIN, [this, entry](std::uint32_t) { advance(entry); }); !added.ok())
      turn_away(entry, added.error());
  }
  pause(half_open_.front().since + kCrowdPatience);
}

bool ServerThread::make_room() {
  if (half_open_.size() < most_half_open()) return true;
  if (now() - half_open_.front().since < kCrowdPatience) return false;
  turn_away(half_open_.begin(),
            Error{.code = Code::kRefused, .detail = "its handshake took too long while others waited"});
  return true;
}

void ServerThread::pause(Clock::time_point until) {
  if (paused_) return;
  paused_ = true;
  for (const auto& listener : listeners_) (void)loop_->modify(listener.fd.get(), 0);
  resume_timer_ = loop_->at(until, [this] { resume(); });
}

void ServerThread::resume() {
  if (!paused_) return;
  paused_ = false;
  loop_->cancel(resume_timer_);
  for (const auto& listener : listeners_) (void)loop_->modify(listener.fd.get(), EPOLLIN);
}

void ServerThread::advance(HalfOpens::iterator half_open) {
  const auto finished = half_open->handshake.advance(half_open->fd.get());
  if (!finished.ok()) return turn_away(half_open, finished.error());
  if (*finished) let_in(half_open);
}

void ServerThread::let_in(HalfOpens::iterator half_open) {
  let_in_.fetch_add(1);
  loop_->cancel(half_open->limit);
  loop_->remove(half_open->fd.get());
  HalfOpen done = std::move(*half_open);
  half_open_.erase(half_open);
  resume();
  clients_.add(std::move(done.fd), done.handshake.hello(), done.peer);
}

void ServerThread::turn_away(HalfOpens::iterator half_open, const Error& why) {
  turned_away_.fetch_add(1);
  const std::string line = "the store turned away " + half_open->peer + ": " + why.detail +
                           (why.hint.empty() ? "" : " (hint: " + why.hint + ")");
  if (why.code == Code::kPeerLost)
    log::debug(line);
  else
    refusals_.warn(line);
  loop_->remove(half_open->fd.get());
  loop_->cancel(half_open->limit);
  half_open_.erase(half_open);
  resume();
}

}  // namespace store

// ---- the handle ----

using store::ServerThread;

StoreServer::StoreServer(std::unique_ptr<ServerThread> thread) : thread_(std::move(thread)) {}
StoreServer::~StoreServer() { thread_->stop(); }

Result<std::unique_ptr<StoreServer>> StoreServer::start(const transport::Address& bind,
                                                        transport::Credentials credentials) {
  transport::Listener listener = TUTTI_TRY(listen(bind));
  auto loop = TUTTI_TRY(transport::EventLoop::create());
  auto thread = std::make_unique<ServerThread>(std::move(listener), std::move(credentials), std::move(loop),
                                               std::make_shared<store::SharedTable>());
  TUTTI_TRY(thread->start());
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(thread)));
}

Result<std::unique_ptr<StoreServer>> StoreServer::follow(const transport::Address& bind,
                                                         transport::Credentials credentials,
                                                         const transport::Address& primary, Deadline deadline) {
  transport::Listener listener = TUTTI_TRY(listen(bind));
  auto loop = TUTTI_TRY(transport::EventLoop::create());
  store::Upstream upstream = TUTTI_TRY(store::copy_from(primary, credentials, deadline));
  auto thread =
      std::make_unique<ServerThread>(std::move(listener), std::move(credentials), std::move(loop), upstream.table);
  thread->replication().become_standby(std::move(upstream));
  TUTTI_TRY(thread->start());
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(thread)));
}

StoreRole StoreServer::role() const { return thread_->replication().role(); }

Status StoreServer::serve_alone() { return thread_->replication().serve_alone(); }

bool StoreServer::in_doubt() const { return thread_->replication().in_doubt(); }

std::optional<std::string> StoreServer::peek(const std::string& key) const { return thread_->table()->peek(key); }

transport::Address StoreServer::address() const { return thread_->address(); }

Result<transport::Address> StoreServer::unix_address() { return thread_->unix_address(); }

std::unique_ptr<Store> StoreServer::local() { return std::make_unique<MemoryStore>(thread_->table()); }

StoreServer::Counts StoreServer::counts() const { return thread_->counts(); }

}  // namespace tutti
