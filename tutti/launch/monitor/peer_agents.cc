#include "tutti/launch/monitor/peer_agents.h"

#include <utility>

#include "tutti/base/text.h"
#include "tutti/base/thread.h"
#include "tutti/launch/membership/protocol.h"

namespace tutti::launch {
namespace {

constexpr auto kPublishEvery = std::chrono::seconds(1);
constexpr auto kRequestLasts = std::chrono::seconds(10);
constexpr Duration kStoreLimit = std::chrono::seconds(2);  // for a call, and so for the destructor
constexpr std::size_t kLongestReport = 1 << 20;

Result<std::unique_ptr<TcpStore>> reach_store(const std::string& store, const transport::Credentials& credentials) {
  auto servers = TUTTI_TRY(parse_servers(store));
  auto reached = TUTTI_TRY(TcpStore::connect(std::move(servers), credentials, -1, Deadline::after(kStoreLimit)));
  reached->set_call_timeout(kStoreLimit);
  return reached;
}

}  // namespace

Result<std::unique_ptr<PeerStatus>> PeerStatus::start(std::string store, transport::Credentials credentials, int round,
                                                      int node, int nodes) {
  std::unique_ptr<PeerStatus> made(new PeerStatus(std::move(store), std::move(credentials), round, node, nodes));
  made->thread_ = TUTTI_TRY(start_thread([self = made.get()] { self->run(); }));
  return made;
}

PeerStatus::PeerStatus(std::string store, transport::Credentials credentials, int round, int node, int nodes)
    : store_(std::move(store)), credentials_(std::move(credentials)), round_(round), node_(node), nodes_(nodes) {}

PeerStatus::~PeerStatus() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PeerStatus::publish(std::string status) {
  const MutexLock lock(mutex_);
  own_status_ = std::move(status);
}

void PeerStatus::request() {
  const MutexLock lock(mutex_);
  requested_until_ = now() + kRequestLasts;
  wake_.notify_all();
}

bool PeerStatus::read_since(Clock::time_point since) const {
  const MutexLock lock(mutex_);
  return read_at_ >= since;
}

std::map<int, PeerStatus::Peer> PeerStatus::peers() const {
  const MutexLock lock(mutex_);
  std::map<int, Peer> peers;
  for (int node = 0; node < nodes_; ++node) {
    if (node == node_) continue;
    const auto last = last_read_.find(node);
    peers[node] = last == last_read_.end() ? Peer{} : Peer{last->second.status, seconds_since(last->second.changed)};
  }
  return peers;
}

std::string PeerStatus::trouble() const {
  const MutexLock lock(mutex_);
  return trouble_;
}

void PeerStatus::run() {
  std::unique_ptr<Store> store;
  MutexLock lock(mutex_);
  while (!ends_) {
    lock.unlock();
    Status done;
    if (!store) {
      auto reached = reach_store(store_, credentials_);
      done = reached.status();
      if (reached.ok()) store = *std::move(reached);
    }
    if (store) done = exchange(*store);
    if (!done.ok()) store.reset();
    lock.lock();
    trouble_ = done.ok() ? "" : to_string(done.error());
    const auto before = requested_until_;
    const auto next = now() + kPublishEvery;
    while (!ends_ && requested_until_ <= before && wake_.wait_until(lock, next) == std::cv_status::no_timeout) {
    }
  }
}

Status PeerStatus::exchange(Store& store) {
  std::string mine;
  bool requested = false;
  {
    const MutexLock lock(mutex_);
    mine = own_status_;
    requested = now() < requested_until_;
  }
  if (!mine.empty()) TUTTI_TRY(store.set(membership::keys::status(round_, node_), mine));
  if (!requested) return {};
  for (int node = 0; node < nodes_; ++node) {
    if (node == node_) continue;
    const std::string key = membership::keys::status(round_, node);
    if (!TUTTI_TRY(store.check({key}))) continue;
    const std::string status = TUTTI_TRY(store.get(key, Deadline::after(kStoreLimit)));
    const MutexLock lock(mutex_);
    LastRead& last = last_read_[node];
    if (last.status != status) last = {status, now()};
  }
  const MutexLock lock(mutex_);
  read_at_ = now();
  return {};
}

Status share_report(const std::string& store, const transport::Credentials& credentials, int round,
                    const SharedReport& report) {
  const auto reached = TUTTI_TRY(reach_store(store, credentials));
  TUTTI_TRY(reached->set(membership::keys::json_report(round),
                         report.json.size() <= kLongestReport ? report.json : std::string()));
  return reached->set(membership::keys::report(round), report.text.substr(0, kLongestReport));
}

Result<SharedReport> read_report(const std::string& store, const transport::Credentials& credentials, int round,
                                 Duration patience) {
  const auto reached = TUTTI_TRY(reach_store(store, credentials));
  SharedReport report{.text = TUTTI_TRY(reached->get(membership::keys::report(round), Deadline::after(patience))),
                      .json = {}};
  if (auto json = reached->get(membership::keys::json_report(round), Deadline::after(kStoreLimit)); json.ok())
    report.json = *std::move(json);
  return report;
}

}  // namespace tutti::launch
