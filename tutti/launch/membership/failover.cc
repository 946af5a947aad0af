// Primary and standby check ten times a second whether there is anything to decide. Deciding is cheap and safe at any
// time: a vote is given once a round, and the store itself refuses to continue while the other one is heard. A vote in
// a newer round makes those of older rounds worthless: an agent that takes part in a round knows that both stores have
// its participants, so nothing is decided by an earlier round any more.
//
// The voters are the newest participants that both stores have. The primary learns them when they are stored, for then
// its standby has confirmed them. The standby reads them from its copy, which cannot change any more by the time it
// decides: it has heard nothing for 2.5 s.
#include "tutti/launch/membership/failover.h"

#include <algorithm>
#include <cerrno>

#include "tutti/base/text.h"
#include "tutti/base/thread.h"
#include "tutti/store/tcp_store.h"
#include "tutti/transport/socket.h"

namespace tutti::launch::membership {
namespace {

constexpr auto kFailoverTurn = std::chrono::milliseconds(100);
constexpr auto kFailoverPatience = std::chrono::milliseconds(500);  // for votes to come back from the running nodes
constexpr auto kProbeLimit = std::chrono::seconds(1);
constexpr auto kRedirectTurn = std::chrono::seconds(1);
constexpr auto kRedirectTry = std::chrono::seconds(1);
constexpr auto kOfStrangers = std::chrono::seconds(30);  // to check a port again that another job has by now

std::string of_nodes(std::size_t votes, const Voters& voters) {
  return std::to_string(votes) + " of " + std::to_string(voters.members.size()) + " nodes";
}

}  // namespace

// ---- votes ----

bool Vote::give(std::int32_t round, std::uint64_t candidate) {
  MutexLock lock(mutex_);
  if (round < round_) return false;
  if (round > round_) {
    round_ = round;
    candidate_ = candidate;
  }
  return candidate_ == candidate;
}

Voters Voters::of(const Participants& participants) {
  Voters voters{.round = participants.round, .members = {}};
  for (const JoinRequest& node : participants.nodes) voters.members.push_back(number_of(node.id));
  return voters;
}

std::size_t Voters::count(const std::set<std::uint64_t>& votes) const {
  return std::size_t(
      std::count_if(members.begin(), members.end(), [&](std::uint64_t id) { return votes.contains(id); }));
}

Ticker::Ticker(Duration period, std::function<void()> function) {
  thread_ = start_thread([this, period, function = std::move(function)] {
              MutexLock lock(mutex_);
              while (!stop_) {
                lock.unlock();
                function();
                lock.lock();
                if (!stop_) stopped_.wait_for(lock, period);
              }
            }).or_throw();
}

Ticker::~Ticker() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

// ---- the primary ----

FailoverPrimary::FailoverPrimary(StoreServer& server, HeartbeatCenter& center, Vote& vote, std::uint64_t self,
                                 std::function<void(const std::string&)> say)
    : server_(server), center_(center), vote_(vote), self_(self), say_(std::move(say)), ticker_(kFailoverTurn, [this] {
        turn();
      }) {}

void FailoverPrimary::set_voters(Voters voters) {
  MutexLock lock(mutex_);
  voters_ = std::move(voters);
}

void FailoverPrimary::turn() {
  if (!server_.in_doubt()) {
    doubt_since_.reset();
    cut_off_ = false;
    center_.set_partitioned(false);
    return center_.ask_votes(-1);
  }
  const Voters voters = [&] {
    MutexLock lock(mutex_);
    return voters_;
  }();
  if (!doubt_since_) doubt_since_ = now();
  center_.ask_votes(voters.round);
  auto votes = center_.votes(voters.round);
  if (vote_.give(voters.round, self_)) votes.insert(self_);
  const std::size_t count = voters.count(votes);
  if (voters.enough_for_primary(count)) {
    if (server_.serve_alone().ok())
      say_("the node that keeps a copy of the store is silent: the store continues without it, because " +
           of_nodes(count, voters) + " are here");
    return;
  }
  if (now() - *doubt_since_ < kFailoverPatience) return;
  cut_off_ = true;
  center_.set_partitioned(true);
}

// ---- the standby ----

Result<std::unique_ptr<FailoverStandby>> FailoverStandby::follow(StandbyOptions options, Deadline deadline) {
  const auto follow_at = [&](std::uint16_t port) {
    return StoreServer::follow({.host = options.host, .port = port}, options.credentials, options.primary, deadline);
  };
  auto server = follow_at(options.primary.port);
  if (!server.ok() && server.error().code == Code::kAddressInUse) server = follow_at(0);
  if (!server.ok()) return server.status();
  auto votes = TUTTI_TRY(HeartbeatCenter::open(options.host, (*server)->address().port, options.credentials,
                                               options.times, HeartbeatTable::Role::kVotes));
  return as_result([&] {
    return std::unique_ptr<FailoverStandby>(
        new FailoverStandby(std::move(options), *std::move(server), std::move(votes)));
  });
}

FailoverStandby::FailoverStandby(StandbyOptions options, std::unique_ptr<StoreServer> server,
                                 std::unique_ptr<HeartbeatCenter> votes)
    : options_(std::move(options)),
      server_(std::move(server)),
      votes_(std::move(votes)),
      ticker_(std::make_unique<Ticker>(kFailoverTurn, [this] { turn(); })) {}

void FailoverStandby::primary_is_lost(bool ended) {
  lost_ = true;
  if (ended) ended_ = true;
}

std::unique_ptr<StoreServer> FailoverStandby::release() {
  ticker_.reset();
  votes_.reset();
  return std::move(server_);
}

void FailoverStandby::turn() {
  const StoreRole role = server_->role();
  if (role == StoreRole::kPrimary || role == StoreRole::kDemoted) return;
  const auto text = server_->peek(keys::kParticipants);
  const auto participants = text ? parse_participants(*text) : std::nullopt;
  if (!participants) return;
  const Voters voters = Voters::of(*participants);
  votes_->ask_votes(voters.round);
  if (server_->in_doubt() && may_take_over(voters))
    (void)server_->serve_alone();  // refused: asked again in the next turn
}

bool FailoverStandby::may_take_over(const Voters& voters) {
  auto votes = votes_->votes(voters.round);
  if (lost_ && options_.vote->give(voters.round, options_.self)) votes.insert(options_.self);
  const std::size_t count = voters.count(votes);
  if (voters.enough_for_standby(count)) {
    options_.say("the store is lost for " + of_nodes(count, voters) + ": its copy serves from now on");
    return true;
  }
  return voters.members.size() <= 2 && lost_ && ended_ && primary_has_ended();
}

bool FailoverStandby::primary_has_ended() const {
  const auto probe = connect(options_.primary, Deadline::after(kProbeLimit), /*retry=*/false);
  return !probe.ok() && probe.error().errno_value == ECONNREFUSED;
}

// ---- redirects ----
//
// Without one, a node 0 that is started again would find nobody at its endpoint, and begin a job of its own as soon as
// MIN nodes are there. It is found within a second or two; should it have begun by then, it ends that job.
//
// A node that was cut off does not know yet that another one has taken the store over from it, perhaps at an address
// where the store once was. A redirect left there would lead the whole job astray. So only a store that began empty
// gets one: a store that took over from any other, ours included, has the list of former addresses in its table.

Redirect::Redirect(std::vector<transport::Address> former, const transport::Address& here,
                   transport::Credentials credentials, std::function<void(const std::string&)> say)
    : former_(list_of(std::move(former))),
      here_(to_string(here)),
      credentials_(std::move(credentials)),
      say_(std::move(say)),
      ticker_(kRedirectTurn, [this] { turn(); }) {}

std::vector<Redirect::Former> Redirect::list_of(std::vector<transport::Address> addresses) {
  std::vector<Former> list;
  for (transport::Address& address : addresses) list.push_back({.address = std::move(address)});
  return list;
}

void Redirect::turn() {
  for (Former& former : former_) {
    if (!ending_ && now() >= former.next) check(former);
  }
}

void Redirect::check(Former& former) {
  if (!connect(former.address, Deadline::after(kRedirectTry), /*retry=*/false).ok()) return;
  const auto store = TcpStore::connect(former.address, credentials_, -1, Deadline::after(kRedirectTry));
  if (!store.ok()) {
    if (store.error().code == Code::kRefused || store.error().code == Code::kMismatch)
      former.next = now() + kOfStrangers;
    return;
  }
  (*store)->set_call_timeout(kRedirectTry);
  const auto took_over = (*store)->check({keys::kFormer});
  if (!took_over.ok() || *took_over) return;
  const auto known = (*store)->check({keys::kMoved});
  if (!known.ok()) return;
  if (*known) {
    const auto redirect = (*store)->get(keys::kMoved, Deadline::after(kRedirectTry));
    if (!redirect.ok() || *redirect == here_) return;
  }
  if (!(*store)->set(keys::kMoved, here_)) return;  // in a second again
  say_("a node began to serve the job's store at its former address " + to_string(former.address) +
       ": it is redirected to " + here_);
}

}  // namespace tutti::launch::membership
