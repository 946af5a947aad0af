// A thread, because a store that does not answer must not hold up the agent, which has ranks to look after.
#include "tutti/launch/monitor/peer_status.h"

#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr auto kNeighboursTurn = std::chrono::seconds(1);
constexpr auto kInterest = std::chrono::seconds(10);
constexpr auto kNeighboursStoreLimit = std::chrono::seconds(2);  // for a call, and so for the destructor

std::string key_of(int round, int node) {
  return "agents/status/" + std::to_string(round) + "/" + std::to_string(node);
}

}  // namespace

PeerStatus::PeerStatus(std::string store, Credentials credentials, int round, int node, int nodes)
    : store_(std::move(store)),
      credentials_(std::move(credentials)),
      round_(round),
      node_(node),
      nodes_(nodes),
      thread_([this] { run(); }) {}

PeerStatus::~PeerStatus() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void PeerStatus::tell(std::string status) {
  const MutexLock lock(mutex_);
  mine_ = std::move(status);
}

void PeerStatus::want() {
  const MutexLock lock(mutex_);
  wanted_until_ = now() + kInterest;
  wake_.notify_all();
}

bool PeerStatus::read_since(Clock::time_point since) const {
  const MutexLock lock(mutex_);
  return read_at_ >= since;
}

std::map<int, PeerStatus::Told> PeerStatus::told() const {
  const MutexLock lock(mutex_);
  std::map<int, Told> told;
  for (int node = 0; node < nodes_; ++node) {
    if (node == node_) continue;
    const auto heard = heard_.find(node);
    told[node] = heard == heard_.end() ? Told{} : Told{heard->second.status, seconds_since(heard->second.changed)};
  }
  return told;
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
      const auto servers = parse_servers(store_);
      auto connected = servers.ok()
                           ? TcpStore::connect(*servers, credentials_, -1, Deadline::after(kNeighboursStoreLimit))
                           : Result<std::unique_ptr<TcpStore>>(servers.error());
      done = connected.status();
      if (connected.ok()) store = *std::move(connected);
      if (store) store->set_call_timeout(kNeighboursStoreLimit);
    }
    if (store) done = turn(*store);
    if (!done.ok()) store.reset();
    lock.lock();
    trouble_ = done.ok() ? "" : to_string(done.error());
    const auto before = wanted_until_;
    const auto next_turn = now() + kNeighboursTurn;
    while (!ends_ && wanted_until_ <= before && wake_.wait_until(lock, next_turn) == std::cv_status::no_timeout) {
    }
  }
}

Status PeerStatus::turn(Store& store) {
  std::string mine;
  bool wanted = false;
  {
    const MutexLock lock(mutex_);
    mine = mine_;
    wanted = now() < wanted_until_;
  }
  if (!mine.empty()) TUTTI_TRY(store.set(key_of(round_, node_), mine));
  if (!wanted) return {};
  for (int node = 0; node < nodes_; ++node) {
    if (node == node_) continue;
    const std::string key = key_of(round_, node);
    if (!TUTTI_TRY(store.check({key}))) continue;
    const std::string status = TUTTI_TRY(store.get(key, Deadline::after(kNeighboursStoreLimit)));
    const MutexLock lock(mutex_);
    Heard& heard = heard_[node];
    if (heard.status != status) heard = {status, now()};
  }
  const MutexLock lock(mutex_);
  read_at_ = now();
  return {};
}

}  // namespace tutti
