#include "tutti/launch/membership/store_member.h"

#include <algorithm>
#include <thread>

#include "tutti/base/text.h"
#include "tutti/rendezvous/reach_store.h"
#include "tutti/transport/socket.h"

namespace tutti::launch::membership {
namespace {

constexpr auto kCopyLimit = std::chrono::seconds(10);  // for a copy of the store
constexpr auto kStandbyPause = std::chrono::milliseconds(20);

constexpr const char* kMinority =
    "this node receives heartbeats of fewer than half of the last round, and a minority never continues";
constexpr const char* kNobodyServes =
    "both nodes that have the store are lost, or the network is cut and fewer than a majority of the nodes of the "
    "last round are on this side (of two nodes one is no majority): a minority never continues";

}  // namespace

Limits StoreMember::limits_for(const NodesOptions& options, bool numbered) {
  Limits limits = limits_of(options);
  limits.numbered = numbered;
  limits.failover = options.failover && !limits.fixed();
  return limits;
}

StoreMember::StoreMember(const NodesOptions& options, bool numbered)
    : Member(options, limits_for(options, numbered)), place_(options.store), address_(to_string(options.store)) {}

// ---- the store ----

Status StoreMember::serve() {
  const bool moved = moved_ || pair_.round >= 0;  // then the job continues elsewhere
  if (server_ || moved) return {};
  const auto place = TUTTI_TRY(serving_place(place_));
  if (!place) return {};
  auto server = StoreServer::start(*place, options_.credentials);
  if (!server.ok()) {
    if (server.error().code != Code::kAddressInUse || !another_serves(*place)) return server.status();
    place_ = *place;
    return {};
  }
  server_ = *std::move(server);
  place_ = server_->address();
  address_ = to_string(place_);
  return {};
}

std::vector<transport::Address> StoreMember::servers() const {
  auto known = parse_servers(pair_.servers);
  if (pair_.round < 0 || !known.ok()) return {place_};
  if (primary_lost_ && known->size() > 1) std::swap((*known)[0], (*known)[1]);  // the one that is lost comes last
  return *std::move(known);
}

Result<std::unique_ptr<Store>> StoreMember::connect(Deadline deadline) {
  TUTTI_TRY(serve());
  const std::vector<transport::Address> known = servers();
  auto found = primary_lost_ && known.size() > 1 ? serving_at(known[0], deadline.at_most(kMemberTurn))
                                                 : Result<std::unique_ptr<TcpStore>>(Error{});
  if (!found.ok()) found = TcpStore::connect(known, options_.credentials, -1, deadline);
  auto connected = TUTTI_TRY(std::move(found));
  local_address_ = connected->local_address().host;
  address_ = to_string(connected->server());
  connected->set_call_timeout(kCallLimit);
  return std::unique_ptr<Store>(std::move(connected));
}

Result<std::unique_ptr<TcpStore>> StoreMember::serving_at(const transport::Address& server, Deadline deadline) const {
  return TcpStore::connect({server, server}, options_.credentials, -1, deadline);
}

Error StoreMember::explain_unreachable(Error error) const {
  if (has_failover()) {
    error.hint = kNobodyServes;
    return error;
  }
  const bool here = rendezvous::is_loopback_text(place_) || transport::is_local_address(place_.host);
  if (const std::string holder = here ? transport::port_holder(place_) : std::string(); !holder.empty())
    error.detail += "; that port of this machine is held by " + holder;
  if (error.errno_value == 0 && !error.hint.empty()) return error;  // of a name
  error.hint = unreachable_hint();
  return error;
}

// The server here, if there is one; a standby that has taken over becomes it.
StoreServer* StoreMember::server() {
  if (standby_ && standby_->role() == StoreRole::kPrimary) {
    const transport::Address former = standby_->primary();
    server_ = standby_->release();
    standby_.reset();
    back_to_primary();
    place_ = server_->address();
    address_ = to_string(place_);
    options_.say("the store of the job is now served here, at " + address_ + ": nodes that join later do so there");
    redirect_from(former);
  }
  return server_.get();
}

bool StoreMember::standby_serves() const {
  const auto known = parse_servers(pair_.servers);
  return known.ok() && known->size() > 1 && address_ == to_string(known->back());
}

void StoreMember::redirect_from(const transport::Address& former) {
  const auto known = server_->peek(keys::kFormer);
  const std::string text = (known ? *known + "," : std::string()) + to_string(former);
  const auto old = parse_servers(text);
  if (!old.ok()) return;
  const Status stored = server_->local()->set(keys::kFormer, text);
  if (!stored)
    return options_.say("nodes that connect to the former address of the store will not be redirected: " +
                        to_string(stored.error()));
  std::vector<transport::Address> places;
  for (const transport::Address& place : *old)
    if (place != server_->address() && std::find(places.begin(), places.end(), place) == places.end())
      places.push_back(place);
  redirect_ = std::make_unique<Redirect>(std::move(places), server_->address(), options_.credentials, options_.say);
}

std::optional<std::string> StoreMember::moved_to(Store* store) {
  if (!limits_.failover) return {};
  if (server_) return server_->peek(keys::kMoved);
  if (pair_.round >= 0) return {};
  if (old_server_) {  // the job may have moved again while this node was on its way
    const auto redirect = old_server_->peek(keys::kMoved);
    return redirect && *redirect != to_string(place_) ? redirect : std::nullopt;
  }
  if (store == nullptr) return {};
  const auto there = store->check({keys::kMoved});
  if (!there.ok() || !*there) return {};
  const auto address = store->get(keys::kMoved, Deadline::after(kCallLimit));
  return address.ok() ? std::optional(*address) : std::nullopt;
}

Status StoreMember::follow_redirect(const std::string& address) {
  transport::Address place = TUTTI_TRY(transport::parse_address(address));
  options_.say("the job continues at " + address + ", not at " + to_string(place_) + ": this node joins it there");
  if (server_) old_server_ = std::move(server_);
  moved_ = true;
  pair_ = {};
  place_ = std::move(place);
  address_ = address;
  return {};
}

// A node that serves the store and cannot reach its standby: the store answers nobody until that is settled.
Status StoreMember::settle_doubt(Deadline deadline) {
  double next_line = 0;
  for (;;) {
    const StoreServer* const here = server();
    if (here == nullptr || (here->role() == StoreRole::kPrimary && !here->in_doubt())) return {};
    if (is_demoted(deadline.at_most(kMemberTurn))) {
      stop_coordinating();
      store_.reset();
      options_.say("the store of the job is no longer served here");
      redirect_.reset();
      server_.reset();
      return {};
    }
    TUTTI_TRY(pause(kShortPause));
    if (deadline.expired()) return deadline.error(kMinority, "is the network between the nodes whole?");
    if (!is_cut_off() || deadline.waited() < next_line) continue;
    next_line = deadline.waited() + kSayEvery;
    options_.say(kMinority);
  }
}

// Whether this node served the store and another one does now.
bool StoreMember::is_demoted(Deadline deadline) {
  if (server_->role() == StoreRole::kDemoted) return true;
  if (!server_->in_doubt()) return false;
  const std::vector<transport::Address> known = servers();
  return std::any_of(known.begin(), known.end(), [&](const transport::Address& other) {
    return other != server_->address() && serving_at(other, deadline).ok();
  });
}

// ---- the coordinator ----

// The node that serves the store claims the part before any other comes.
Result<StoreMember::Choice> StoreMember::choose(const std::optional<CoordinatorAddress>& other, Deadline deadline,
                                                double& next_line) {
  if (serves_store()) return Choice::kClaim;
  if (other && (other->id != suspect_ || (!standby_serves() && TUTTI_TRY(answers(*other))))) {
    back_to_primary();
    return Choice::kFollow;
  }
  TUTTI_TRY(wait_for_claim(deadline, next_line));
  return Choice::kLookAgain;
}

// The node that serves the store will coordinate in a moment.
Status StoreMember::wait_for_claim(Deadline deadline, double& next_line) {
  TUTTI_TRY(pause(kShortPause));
  if (deadline.expired())
    return deadline.error("the store at " + address_ + " answers, but no node coordinates the job",
                          "does another job use this store? Give the job its own --rdzv-endpoint");
  if (deadline.waited() < next_line) return {};
  next_line = deadline.waited() + kSayEvery;
  options_.say("waiting for a coordinator of the job at " + address_);
  return {};
}

Result<std::unique_ptr<Store>> StoreMember::prepare_claim(CoordinatorOptions& options,
                                                          const std::optional<CoordinatorAddress>& last) {
  options.port = server_->address().port;
  options.server = server_.get();
  options.vote = vote_;
  if (last && last->id != id_) options.predecessor = last->id;
  return server_->local();
}

Voter StoreMember::voter_for(const std::string& id) const {
  return [vote = vote_, candidate = number_of(id)](std::int32_t round) { return vote->give(round, candidate); };
}

// From now on this node is for the standby.
void StoreMember::on_coordinator_lost(bool ended) {
  primary_lost_ = true;
  if (standby_) {
    standby_->primary_is_lost(ended);
  } else if (!server_ && !voter_ && has_failover()) {
    auto voter = Heartbeat::open(pair_.votes, number_of(id_), options_.credentials, times(), voter_for(pair_.standby));
    if (voter.ok()) voter_ = *std::move(voter);
  }
  if (has_failover() && !serves_store()) store_.reset();  // a call there would only wait
}

void StoreMember::back_to_primary() {
  voter_.reset();
  primary_lost_ = false;
}

// ---- a round ----

Status StoreMember::settle_store(const Participants& participants, Round& round) {
  round.store = address_;
  if (limits_.failover) {
    back_to_primary();
    const transport::Address primary = dynamic_cast<const TcpStore&>(*store_).server();
    if (standby_ &&
        (participants.standby != id_ || standby_->primary() != primary || standby_->role() != StoreRole::kStandby))
      standby_.reset();
    take(TUTTI_TRY(settle_pair(participants, primary)));
    round.store = to_string(primary);
  }
  if (server_ && to_string(server_->address()) == round.store) round.unix_store = unix_address_of(*server_, options_);
  return {};
}

Result<StorePair> StoreMember::settle_pair(const Participants& participants, const transport::Address& primary) {
  const bool keeps = participants.standby == id_;
  if (!keeps && !participants.standby.empty()) return await_pair(participants);
  StorePair pair{.round = participants.round, .servers = to_string(primary), .standby = {}, .votes = {}};
  if (keeps) pair = keep_copy(participants, primary);
  if (!keeps && !server_) return pair;
  const std::string text = encode(pair);
  TUTTI_TRY(store_->multi_set({keys::store(participants.round), keys::kStore}, {text, text}));
  if (participants.round > 0) TUTTI_TRY(store_->remove(keys::store(participants.round - 1)));
  return pair;
}

// If no copy can be had the round begins without.
StorePair StoreMember::keep_copy(const Participants& participants, const transport::Address& primary) {
  const StorePair alone{.round = participants.round, .servers = to_string(primary), .standby = {}, .votes = {}};
  for (const Deadline deadline = Deadline::after(kCopyLimit); !standby_;) {
    auto standby = FailoverStandby::follow({.self = number_of(id_),
                                            .host = local_address_,
                                            .primary = primary,
                                            .credentials = options_.credentials,
                                            .times = times(),
                                            .vote = vote_,
                                            .say = options_.say},
                                           deadline);
    if (standby.ok()) {
      standby_ = *std::move(standby);
    } else if (standby.error().code != Code::kLimit || deadline.expired()) {
      options_.say("the store has no standby in this round: " + to_string(standby.error()));
      return alone;
    } else {  // the last one is just leaving
      std::this_thread::sleep_for(kStandbyPause);
    }
  }
  return {.round = participants.round,
          .servers = to_string(std::vector{primary, standby_->address()}),
          .standby = id_,
          .votes = standby_->votes_address()};
}

Result<StorePair> StoreMember::await_pair(const Participants& participants) {
  for (const Deadline deadline = Deadline::after(2 * kCopyLimit);;) {
    const auto text = store_->get(keys::store(participants.round), deadline.at_most(kMemberTurn));
    if (text.ok()) {
      if (auto pair = parse_store_pair(*text)) return *std::move(pair);
      return Error{.code = Code::kMismatch,
                   .detail = "the message of the store's standby cannot be parsed",
                   .hint = "install the same version of tutti on all nodes"};
    }
    if (text.error().code != Code::kTimeout || deadline.expired()) return text.status();
    if (TUTTI_TRY(store_->check({keys::end(participants.round)})))
      return Error{.code = Code::kAborted, .detail = "it ended before the store had its standby"};
  }
}

void StoreMember::take(StorePair pair) {
  if (pair.standby.empty() && pair_.round < 0) return;  // as the command line said
  const bool others = pair.servers != pair_.servers;
  pair_ = std::move(pair);
  if (!others) return;
  if (auto next = connect(Deadline::after(kCallLimit)); next.ok()) store_ = *std::move(next);
}

void StoreMember::learn_store() {
  if (!limits_.failover) return;
  const auto there = store_->check({keys::kStore});
  if (!there.ok() || !*there) return;
  const auto text = store_->get(keys::kStore, Deadline::after(kCallLimit));
  auto pair = text.ok() ? parse_store_pair(*text) : std::nullopt;
  if (pair && pair->round > pair_.round) take(*std::move(pair));
}

}  // namespace tutti::launch::membership
