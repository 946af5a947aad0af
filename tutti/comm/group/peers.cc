#include "tutti/comm/group/peers.h"

#include <poll.h>

#include <algorithm>

#include "tutti/base/machine.h"

namespace tutti::comm {
namespace {

constexpr const char* kLeftKey = "left";
constexpr const char* kLeftInOrder = "has left and will not take part";
constexpr const char* kFled = "left because of an exception and will not take part";
constexpr const char* kSameCalls = "do all ranks make the same number of calls?";
constexpr Duration kNotePatience = std::chrono::seconds(1);
constexpr Duration kDeparturePatience = std::chrono::milliseconds(200);

}  // namespace

Peers::Peers(Process& process, const GroupSpec& spec) : process_(process), spec_(spec) {
  for (int r = 0; r < spec.size(); ++r) are_all_here_ = are_all_here_ && is_here(r);
}

std::optional<Trouble> Peers::departure_of(int peer) const {
  using Evidence = Process::Evidence;
  if (!process_.host || !is_here(peer)) return {};
  const int local = process_.world[std::size_t(spec_.global_ranks[std::size_t(peer)])].local_rank;
  const transport::Host::Peer state = process_.host->state(local);
  if (state == transport::Host::Peer::kAlive) return {};
  Error error{.code = Code::kPeerLost, .peer = peer};
  const std::string pid = detail::words("(pid ", process_.host->pid(local), ") ");
  switch (state) {
    case transport::Host::Peer::kAlive:
      return {};
    case transport::Host::Peer::kLeft:
      error.detail = pid + kLeftInOrder;
      error.hint = kSameCalls;
      return Trouble{error, Evidence::kCause};
    case transport::Host::Peer::kFled:
      error.detail = pid + kFled;
      error.hint = "its own output shows the exception";
      return Trouble{error, Evidence::kLoss};
    case transport::Host::Peer::kLost:
      error.detail = pid + "has exited: it was killed, crashed, or ended without leaving the group";
      error.hint = "its own output may show why";
      return Trouble{error, Evidence::kLoss};
  }
  return {};
}

std::optional<Trouble> Peers::departure_of_anybody() const {
  transport::Host* const host = process_.host.get();
  for (const auto patience = Deadline::after(kDeparturePatience); host;) {
    for (int r = 0; r < spec_.size(); ++r)
      if (r != spec_.rank)
        if (auto departure = departure_of(r)) return departure;
    std::vector<pollfd> fds;
    std::vector<int> watched;
    host->add_watched(fds, watched);
    if (patience.expired()) break;
    (void)::poll(fds.data(), fds.size(), patience.poll_timeout_ms());
    for (std::size_t i = 0; i < fds.size(); ++i)
      if (fds[i].revents) (void)host->watch(watched[i]);
  }
  return {};
}

bool Peers::is_anybody_lost() const {
  for (int r = 0; r < spec_.size(); ++r) {
    if (r == spec_.rank) continue;
    if (const auto departure = departure_of(r); departure && departure->evidence == Process::Evidence::kLoss)
      return true;
  }
  return process_.has_fault();
}

bool Peers::has_left(int peer) const {
  if (!is_here(peer)) return note_of_leaving(peer) == kLeftInOrder;
  const int local = process_.world[std::size_t(spec_.global_ranks[std::size_t(peer)])].local_rank;
  return process_.host && process_.host->state(local) == transport::Host::Peer::kLeft;
}

Trouble Peers::explain(Error error) const {
  if (error.code != Code::kPeerLost) return {std::move(error), Process::Evidence::kCause};
  auto departure = error.peer >= 0 ? departure_of(error.peer) : departure_of_anybody();
  if (!departure) return {std::move(error), Process::Evidence::kLoss};
  departure->error.operation = error.operation;
  return *departure;
}

void Peers::announce_leaving(bool unwinding) const {
  if (are_all_here_ || !process_.store) return;
  (void)process_.store->set(store_key(kLeftKey, spec_.rank), unwinding ? kFled : kLeftInOrder);
}

void Peers::add_note_of_leaving(Error& error) const {
  const std::string note = note_of_leaving(error.peer);
  if (note.empty()) return;
  error.detail = note;
  error.hint = kSameCalls;
}

std::string Peers::note_of_leaving(int peer) const {
  if (!process_.store) return {};
  const std::string key = store_key(kLeftKey, peer);
  const auto left = process_.store->check({key});
  if (!left.ok() || !*left) return {};
  const auto note = process_.store->get(key, Deadline::after(kNotePatience));
  return note.ok() ? *note : std::string();
}

std::string Peers::stopped_text() const {
  std::string text;
  for (int local = 0; process_.host && local < process_.host->size(); ++local) {
    const pid_t pid = process_.host->pid(local);
    if (!is_suspended(pid)) continue;
    const int global = process_.host->global_rank(local);
    const auto member = std::find(spec_.global_ranks.begin(), spec_.global_ranks.end(), global);
    const std::string who = member == spec_.global_ranks.end()
                                ? detail::words("global rank ", global)
                                : detail::words("rank ", int(member - spec_.global_ranks.begin()));
    text += detail::words("; ", who, " (pid ", pid, ") is stopped (SIGSTOP or a debugger)");
  }
  return text;
}

std::string Peers::store_key(const char* what, int rank) const {
  return detail::words(what, "/", std::to_string(spec_.id), "/", rank);
}

}  // namespace tutti::comm
