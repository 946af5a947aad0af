// One thread, one epoll loop. A connection is first *half open*: a ServerHandshake reads its few fixed bytes. Let in,
// it is a StoreConnection: frames become requests to the table, and the table's answers, to it or to others, become
// frames.
//
// Half-open connections are the only thing that a stranger can make us keep, so there are at most as many as the
// kernel's backlog holds, for 5 s each. When all places are taken, the oldest is dropped if it is slow (a handshake
// takes a millisecond; a slow loris is always the oldest), and new ones stay in the backlog until then: a thousand
// honest ranks that arrive at once just queue, and behind a crowd that says nothing they wait for half a second, or
// two.
#include "tutti/store/server/server.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "tutti/base/log.h"
#include "tutti/base/thread.h"
#include "tutti/store/memory_store.h"
#include "tutti/transport/address.h"

namespace tutti {
namespace {

constexpr std::size_t kMaxHalfOpen = 512;
constexpr Duration kHandshakeLimit = std::chrono::seconds(5);
constexpr Duration kCrowdPatience = std::chrono::milliseconds(500);  // for a half-open connection while others queue
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);    // when this process may open no more descriptors
constexpr Duration kLastWords = std::chrono::seconds(1);             // for answers under way when the server ends

// For words: a Unix socket's other end has no name, but a process.
std::string peer_words(int fd, const Address& at) {
  ucred who{};
  socklen_t size = sizeof who;
  if (!at.is_unix() || ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return to_string(peer_address(fd));
  return "pid " + std::to_string(who.pid) + " at " + to_string(at);
}

// A part of the files that this process may have.
std::size_t most_half_open() {
  rlimit files{};
  (void)::getrlimit(RLIMIT_NOFILE, &files);
  return std::clamp<std::size_t>(std::size_t(files.rlim_cur) / 4, 1, kMaxHalfOpen);
}

}  // namespace

// ---- life ----

Status StoreServerThread::start() {
  table_->serve([loop = loop_.get()] { loop->wake(); });
  thread_ = TUTTI_TRY(start_thread([this] { run(); }));
  pthread_setname_np(thread_.native_handle(), "tutti-store");
  return {};
}

void StoreServerThread::stop() {
  table_->close(Error{.code = Code::kAborted, .detail = "the store of this process has been closed"});
  stop_.store(true);
  loop_->wake();
  thread_.join();
  table_->serve({});
}

Result<Address> StoreServerThread::unix_address() {
  const MutexLock lock(arriving_mutex_);
  if (unix_address_.is_unix()) return unix_address_;
  Listener listener = TUTTI_TRY(listen(new_abstract_address()));
  unix_address_ = listener.address;
  arriving_listeners_.push_back(std::move(listener));
  loop_->wake();
  return unix_address_;
}

void StoreServerThread::run() {
  adopt_listeners();
  if (upstream_) {
    if (const Status added = loop_->add(upstream_->fd(), EPOLLIN, [this](std::uint32_t) { on_upstream(); });
        !added.ok())
      lose_upstream(added.error());
    beat();
  }
  while (!stop_.load()) {
    if (const Status status = loop_->run_once(); !status.ok()) {
      log::error("the store stops: " + to_string(status.error()));
      table_->close(status.error());
      break;
    }
    adopt_listeners();
    carry_out_decision();
    deliver(table_->take_answers());
    stream_entries();
    for (const auto& [fd, why] : std::exchange(doomed_, {})) drop(fd, why);
  }
  say_goodbye();
}

void StoreServerThread::adopt_listeners() {
  const MutexLock lock(arriving_mutex_);
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
void StoreServerThread::say_goodbye() {
  deliver(table_->take_answers());
  stream_entries();
  const Deadline deadline = Deadline::after(kLastWords);
  for (auto& [fd, connection] : connections_) {
    while (connection->has_output()) {
      if (!connection->flush().ok()) break;
      const auto writable = connection->has_output() ? wait_writable(fd, deadline) : Result<bool>(true);
      if (!writable.ok() || !*writable) break;
    }
  }
  // Doors first: who loses the connection may come back at once, and must not be let into an empty house.
  for (const auto& listener : listeners_)
    if (listener.address.is_unix() && !is_abstract(listener.address)) (void)::unlink(listener.address.path.c_str());
  listeners_.clear();
  connections_.clear();
  half_open_.clear();
}

// ---- before the handshake ----

void StoreServerThread::take_connections(const Listener& listener) {
  while (make_room()) {
    auto fd = accept(listener);
    if (!fd.ok()) {
      refusals_.warn("the store: " + to_string(fd.error()));
      return pause(now() + kAcceptPause);
    }
    if (!*fd) return;
    const int number = fd->get();
    const auto entry = half_open_.emplace(half_open_.end(), HalfOpen{std::move(*fd),
                                                                     ServerHandshake(credentials_, Role::kStore),
                                                                     peer_words(number, listener.address),
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

bool StoreServerThread::make_room() {
  if (half_open_.size() < most_half_open()) return true;
  if (now() - half_open_.front().since < kCrowdPatience) return false;
  turn_away(half_open_.begin(),
            Error{.code = Code::kRefused, .detail = "its handshake took too long while others waited"});
  return true;
}

void StoreServerThread::pause(Clock::time_point until) {
  if (paused_) return;
  paused_ = true;
  for (const auto& listener : listeners_) (void)loop_->modify(listener.fd.get(), 0);
  resume_timer_ = loop_->at(until, [this] { resume(); });
}

void StoreServerThread::resume() {
  if (!paused_) return;
  paused_ = false;
  loop_->cancel(resume_timer_);
  for (const auto& listener : listeners_) (void)loop_->modify(listener.fd.get(), EPOLLIN);
}

void StoreServerThread::advance(HalfOpens::iterator half_open) {
  const auto finished = half_open->handshake.advance(half_open->fd.get());
  if (!finished.ok()) return turn_away(half_open, finished.error());
  if (*finished) let_in(half_open);
}

void StoreServerThread::turn_away(HalfOpens::iterator half_open, const Error& why) {
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

// ---- the handle ----

StoreServer::StoreServer(std::unique_ptr<StoreServerThread> thread) : thread_(std::move(thread)) {}
StoreServer::~StoreServer() { thread_->stop(); }

Result<std::unique_ptr<StoreServer>> StoreServer::start(const Address& bind, Credentials credentials) {
  Listener listener = TUTTI_TRY(listen(bind));
  auto loop = TUTTI_TRY(EventLoop::create());
  auto thread = std::make_unique<StoreServerThread>(std::move(listener), std::move(credentials), std::move(loop));
  TUTTI_TRY(thread->start());
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(thread)));
}

Result<std::unique_ptr<StoreServer>> StoreServer::follow(const Address& bind, Credentials credentials,
                                                         const Address& primary, Deadline deadline) {
  Listener listener = TUTTI_TRY(listen(bind));
  auto loop = TUTTI_TRY(EventLoop::create());
  Upstream upstream = TUTTI_TRY(copy_from(primary, credentials, deadline));
  auto thread = std::make_unique<StoreServerThread>(std::move(listener), std::move(credentials), std::move(loop),
                                                    std::move(upstream));
  TUTTI_TRY(thread->start());
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(thread)));
}

StoreRole StoreServer::standing() const { return thread_->standing(); }

Status StoreServer::go_on() { return thread_->decide(); }

bool StoreServer::in_doubt() const { return thread_->in_doubt(); }

std::optional<std::string> StoreServer::peek(const std::string& key) const { return thread_->table()->peek(key); }

Address StoreServer::address() const { return thread_->address(); }

Result<Address> StoreServer::unix_address() { return thread_->unix_address(); }

std::unique_ptr<Store> StoreServer::local() { return std::make_unique<MemoryStore>(thread_->table()); }

StoreServer::Counts StoreServer::counts() const { return thread_->counts(); }

}  // namespace tutti
