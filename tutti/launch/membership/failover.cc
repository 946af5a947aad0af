// Both sides look ten times a second whether there is anything to decide. Deciding is cheap and safe at any time: a
// voice is given once a round (ballot.h), and the store itself refuses to go on while the other is heard.
//
// The electorate is the newest roster that both stores have. The incumbent is told of it when the roster is stored, for
// then its successor has confirmed it; the successor reads it from its copy, which cannot change any more by the time
// it decides: it has heard nothing for 2.5 s.
#include "tutti/launch/membership/failover.h"

#include <cerrno>

#include "tutti/base/text.h"
#include "tutti/launch/membership/keys.h"
#include "tutti/launch/membership/messages.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

constexpr auto kSuccessionTurn = std::chrono::milliseconds(100);
constexpr auto kSuccessionPatience = std::chrono::milliseconds(500);  // for votes to come back from the running nodes
constexpr auto kProbeLimit = std::chrono::seconds(1);

std::string of_nodes(std::size_t voices, const Electorate& electorate) {
  return std::to_string(voices) + " of " + std::to_string(electorate.members.size()) + " nodes";
}

}  // namespace

// ---- the incumbent ----

FailoverPrimary::FailoverPrimary(StoreServer& server, HeartbeatCenter& center, Vote& ballot, std::uint64_t self,
                                 std::function<void(const std::string&)> say)
    : server_(server),
      center_(center),
      ballot_(ballot),
      self_(self),
      say_(std::move(say)),
      ticker_(kSuccessionTurn, [this] { turn(); }) {}

void FailoverPrimary::set_electorate(Electorate electorate) {
  MutexLock lock(mutex_);
  electorate_ = std::move(electorate);
}

void FailoverPrimary::turn() {
  if (!server_.in_doubt()) {
    doubt_since_.reset();
    cut_off_ = false;
    center_.set_adrift(false);
    return center_.ask_voices(-1);
  }
  const Electorate electorate = [&] {
    MutexLock lock(mutex_);
    return electorate_;
  }();
  if (!doubt_since_) doubt_since_ = now();
  center_.ask_voices(electorate.round);
  auto voices = center_.voices(electorate.round);
  if (ballot_.give(electorate.round, self_)) voices.insert(self_);
  const std::size_t count = electorate.count(voices);
  if (electorate.enough_for_primary(count)) {
    if (server_.serve_alone().ok())
      say_("the node that keeps a copy of the store is silent: the store goes on without it, as " +
           of_nodes(count, electorate) + " are here");
    return;
  }
  if (now() - *doubt_since_ < kSuccessionPatience) return;
  cut_off_ = true;
  center_.set_adrift(true);
}

// ---- the successor ----

Result<std::unique_ptr<FailoverStandby>> FailoverStandby::follow(FailoverOptions options, Deadline deadline) {
  const auto follow_at = [&](std::uint16_t port) {
    return StoreServer::follow({.host = options.host, .port = port}, options.credentials, options.primary, deadline);
  };
  auto server = follow_at(options.primary.port);
  if (!server.ok() && server.error().code == Code::kAddressInUse) server = follow_at(0);
  if (!server.ok()) return server.status();
  auto box = TUTTI_TRY(HeartbeatCenter::open(options.host, (*server)->address().port, options.credentials,
                                             options.times, HeartbeatCenter::Part::kBallotBox));
  return as_result([&] {
    return std::unique_ptr<FailoverStandby>(
        new FailoverStandby(std::move(options), *std::move(server), std::move(box)));
  });
}

FailoverStandby::FailoverStandby(FailoverOptions options, std::unique_ptr<StoreServer> server,
                                 std::unique_ptr<HeartbeatCenter> box)
    : options_(std::move(options)),
      server_(std::move(server)),
      box_(std::move(box)),
      ticker_(std::make_unique<Ticker>(kSuccessionTurn, [this] { turn(); })) {}

void FailoverStandby::primary_is_lost(bool ended) {
  lost_ = true;
  if (ended) ended_ = true;
}

std::unique_ptr<StoreServer> FailoverStandby::release() {
  ticker_.reset();
  box_.reset();
  return std::move(server_);
}

void FailoverStandby::turn() {
  const StoreRole standing = server_->role();
  if (standing == StoreRole::kPrimary || standing == StoreRole::kDemoted) return;
  const auto text = server_->peek(keys::kRoster);
  const auto roster = text ? parse_roster(*text) : std::nullopt;
  if (!roster) return;
  Electorate electorate{.round = roster->round, .members = {}};
  for (const JoinRequest& comer : roster->nodes) electorate.members.push_back(number_of(comer.id));
  box_->ask_voices(electorate.round);
  if (server_->in_doubt() && may_go_on(electorate))
    (void)server_->serve_alone();  // refused: asked again in the next turn
}

bool FailoverStandby::may_go_on(const Electorate& electorate) {
  auto voices = box_->voices(electorate.round);
  if (lost_ && options_.ballot->give(electorate.round, options_.self)) voices.insert(options_.self);
  const std::size_t count = electorate.count(voices);
  if (electorate.enough_for_successor(count)) {
    options_.say("the store is lost for " + of_nodes(count, electorate) + ": its copy serves from now on");
    return true;
  }
  return electorate.members.size() <= 2 && lost_ && ended_ && primary_has_ended();
}

bool FailoverStandby::primary_has_ended() const {
  const auto probe = connect(options_.primary, Deadline::after(kProbeLimit), /*retry=*/false);
  return !probe.ok() && probe.error().errno_value == ECONNREFUSED;
}

}  // namespace tutti
