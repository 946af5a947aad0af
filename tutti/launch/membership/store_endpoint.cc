// The agents of a round know two addresses of the store, and ask whoever serves; the ranks know one, because their
// round ends with the node that serves it.
//
// The successor tells where its copy is once that is complete, and the nodes of the round wait for that word: from the
// first moment of a round all of them know where to go.
#include "tutti/launch/membership/store_endpoint.h"

#include <algorithm>
#include <thread>

#include "tutti/base/text.h"
#include "tutti/launch/membership/keys.h"
#include "tutti/launch/membership/own_address.h"
#include "tutti/rendezvous/reach_store.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

constexpr auto kPlaceCallLimit = std::chrono::seconds(3);  // for the store's short calls, while workers are running
constexpr auto kCopyLimit = std::chrono::seconds(10);      // for a copy of the store
constexpr auto kPlaceTurn = std::chrono::seconds(1);
constexpr auto kPlacePause = std::chrono::milliseconds(20);

bool is_loopback_text(const Address& address) { return address.host == "localhost" || is_loopback(address); }

}  // namespace

StoreEndpoint::StoreEndpoint(const NodesOptions& options, const std::string& id)
    : options_(options), id_(id), place_(options.store), address_(to_string(options.store)) {}

StoreEndpoint::~StoreEndpoint() = default;

EtcdOptions StoreEndpoint::etcd_options() const {
  const EtcdAccess& access = options_.etcd_access;
  return {.endpoints = options_.etcd,
          .prefix = "/tutti/" + options_.credentials.job,
          .ca_file = access.ca_file,
          .certificate_file = access.certificate_file,
          .key_file = access.key_file,
          .user = access.user,
          .password = access.password};
}

Status StoreEndpoint::serve() {
  const bool moved = moved_ || pair_.round >= 0;  // then the job goes on elsewhere
  if (server_ || moved || uses_etcd(options_)) return {};
  Address place = place_;
  if (options_.backend == RendezvousBackend::kStatic) {
    if (options_.node != 0) return {};
  } else {
    const auto resolved = resolve(place_);
    const bool ours = resolved.ok() && std::any_of(resolved->begin(), resolved->end(),
                                                   [](const Address& a) { return is_local_address(a.host); });
    if (!options_.hosts.value_or(ours)) return {};
    const bool meant = options_.nodes == 1 || is_loopback_text(place_);
    place = TUTTI_TRY(serving_addresses(place_, "--rdzv-endpoint",
                                        meant ? Identity::OneHost::kUnknown : Identity::OneHost::kNo))
                .front();
    place.port = place_.port;
  }
  auto server = StoreServer::start(place, options_.credentials);
  if (!server.ok()) {
    if (server.error().code == Code::kAddressInUse && another_serves(place)) return {};
    return server.status();
  }
  server_ = *std::move(server);
  place_ = server_->address();
  address_ = to_string(place_);
  return {};
}

// Whether another agent of this job may have the port. Elastic: several of one host may each find that the meeting
// place is theirs; the first has it, and the others meet it there; if somebody else does, the handshake will tell.
// Static: there are two of node 0, which the coordinator will tell to both.
bool StoreEndpoint::another_serves(const Address& place) const {
  if (options_.backend == RendezvousBackend::kElastic) return !options_.hosts.value_or(false);
  return options_.nodes > 1 && serving_at(place, Deadline::after(kPlaceCallLimit)).ok();
}

std::vector<Address> StoreEndpoint::servers() const {
  auto known = parse_servers(pair_.servers);
  if (pair_.round < 0 || !known.ok()) return {place_};
  if (primary_lost_ && known->size() > 1) std::swap((*known)[0], (*known)[1]);  // the one that is lost comes last
  return *std::move(known);
}

Result<std::unique_ptr<Store>> StoreEndpoint::connect(Deadline deadline) {
  std::unique_ptr<Store> store;
  if (uses_etcd(options_)) {
    address_ = options_.etcd;
    store = TUTTI_TRY(connect_etcd(etcd_options(), deadline));
    local_address_ = TUTTI_TRY(own_address_toward(options_.etcd));
  } else {
    TUTTI_TRY(serve());
    const std::vector<Address> known = servers();
    auto found = primary_lost_ && known.size() > 1 ? serving_at(known[0], deadline.at_most(kPlaceTurn))
                                                   : Result<std::unique_ptr<TcpStore>>(Error{});
    if (!found.ok()) found = TcpStore::connect(known, options_.credentials, -1, deadline);
    auto connected = TUTTI_TRY(std::move(found));
    local_address_ = connected->local_address().host;
    address_ = to_string(connected->server());
    store = std::move(connected);
  }
  store->set_call_timeout(kPlaceCallLimit);
  return store;
}

// None but this one is asked, for as long as it only stands by: a dead host takes its time not to answer.
Result<std::unique_ptr<TcpStore>> StoreEndpoint::serving_at(const Address& server, Deadline deadline) const {
  return TcpStore::connect({server, server}, options_.credentials, -1, deadline);
}

std::string StoreEndpoint::holder_here() const {
  const bool here = !uses_etcd(options_) && (is_loopback_text(place_) || is_local_address(place_.host));
  return here ? port_holder(place_) : std::string();
}

StoreServer* StoreEndpoint::server() {
  if (successor_ && successor_->standing() == StoreRole::kPrimary) {
    const Address former = successor_->primary();
    server_ = successor_->release();
    successor_.reset();
    back_to_primary();
    place_ = server_->address();
    address_ = to_string(place_);
    options_.say("the store of the job is served here now, at " + address_ + ": nodes that come later meet there");
    put_up_signpost(former);
  }
  return server_.get();
}

bool StoreEndpoint::is_taken_over() const {
  const auto known = parse_servers(pair_.servers);
  return known.ok() && known->size() > 1 && address_ == to_string(known->back());
}

void StoreEndpoint::put_up_signpost(const Address& former) {
  const auto known = server_->peek(keys::kFormer);
  const std::string text = (known ? *known + "," : std::string()) + to_string(former);
  const auto old = parse_servers(text);
  if (!old.ok()) return;
  const Status stored = server_->local()->set(keys::kFormer, text);
  if (!stored)
    return options_.say("who comes to the old place will not be told of the new one: " + to_string(stored.error()));
  std::vector<Address> places;
  for (const Address& place : *old)
    if (place != server_->address() && std::find(places.begin(), places.end(), place) == places.end())
      places.push_back(place);
  signpost_ = std::make_unique<Redirect>(std::move(places), server_->address(), options_.credentials, options_.say);
}

std::optional<std::string> StoreEndpoint::signpost(Store* store) const {
  if (!limits_of(options_).succession) return {};
  if (server_) return server_->peek(keys::kMoved);
  if (pair_.round >= 0) return {};
  if (old_place_) {  // the job may have moved on while this node was on its way
    const auto sign = old_place_->peek(keys::kMoved);
    return sign && *sign != to_string(place_) ? sign : std::nullopt;
  }
  if (store == nullptr) return {};
  const auto there = store->check({keys::kMoved});
  if (!there.ok() || !*there) return {};
  const auto address = store->get(keys::kMoved, Deadline::after(kPlaceCallLimit));
  return address.ok() ? std::optional(*address) : std::nullopt;
}

Status StoreEndpoint::follow_signpost(const std::string& address) {
  Address place = TUTTI_TRY(parse_address(address));
  options_.say("the job goes on at " + address + ", not at " + to_string(place_) + ": this node comes there");
  if (server_) old_place_ = std::move(server_);
  moved_ = true;
  pair_ = {};
  place_ = std::move(place);
  address_ = address;
  return {};
}

bool StoreEndpoint::is_deposed(Deadline deadline) {
  if (!server_) return false;
  if (server_->role() == StoreRole::kDemoted) return true;
  if (!server_->in_doubt()) return false;
  for (const Address& other : servers()) {
    if (other == server_->address()) continue;
    if (serving_at(other, deadline).ok()) return true;
  }
  return false;
}

void StoreEndpoint::stop_serving() {
  options_.say("the store of the job is not served here any more");
  signpost_.reset();
  server_.reset();
}

// ---- a round ----

Result<std::string> StoreEndpoint::settle(const Participants& roster, std::unique_ptr<Store>& store) {
  if (uses_etcd(options_)) return settle_etcd(roster, *store);
  if (!limits_of(options_).succession) return address_;
  back_to_primary();
  const Address primary = dynamic_cast<const TcpStore&>(*store).server();
  if (successor_ &&
      (roster.successor != id_ || successor_->primary() != primary || successor_->standing() != StoreRole::kStandby))
    successor_.reset();
  StorePair pair{.round = roster.round, .servers = to_string(primary), .successor = {}, .box = {}};
  if (roster.successor == id_) pair = keep_copy(roster, primary);
  if (roster.successor == id_ || (roster.successor.empty() && server_)) {
    const std::string text = encode(pair);
    TUTTI_TRY(store->multi_set({keys::store(roster.round), keys::kStore}, {text, text}));
    if (roster.round > 0) TUTTI_TRY(store->remove(keys::store(roster.round - 1)));
  } else if (!roster.successor.empty()) {
    pair = TUTTI_TRY(await_pair(roster, *store));
  }
  take(std::move(pair), store);
  return to_string(primary);
}

// Where no copy can be had the round goes on without.
StorePair StoreEndpoint::keep_copy(const Participants& roster, const Address& primary) {
  const StorePair alone{.round = roster.round, .servers = to_string(primary), .successor = {}, .box = {}};
  for (const Deadline deadline = Deadline::after(kCopyLimit); !successor_;) {
    auto successor = FailoverStandby::follow({.self = number_of(id_),
                                              .host = local_address_,
                                              .primary = primary,
                                              .credentials = options_.credentials,
                                              .times = times(),
                                              .ballot = ballot_,
                                              .say = options_.say},
                                             deadline);
    if (successor.ok()) {
      successor_ = *std::move(successor);
    } else if (successor.error().code != Code::kLimit || deadline.expired()) {
      options_.say("the store has no successor in this round: " + to_string(successor.error()));
      return alone;
    } else {  // the last one is just leaving
      std::this_thread::sleep_for(kPlacePause);
    }
  }
  return {.round = roster.round,
          .servers = to_string(std::vector{primary, successor_->address()}),
          .successor = id_,
          .box = successor_->box()};
}

Result<StorePair> StoreEndpoint::await_pair(const Participants& roster, Store& store) {
  for (const Deadline deadline = Deadline::after(2 * kCopyLimit);;) {
    const auto text = store.get(keys::store(roster.round), deadline.at_most(kPlaceTurn));
    if (text.ok()) {
      if (auto pair = parse_store_pair(*text)) return *std::move(pair);
      return Error{.code = Code::kMismatch,
                   .detail = "what the successor of the store says is not understood",
                   .hint = "install the same version of tutti on all nodes"};
    }
    if (text.error().code != Code::kTimeout || deadline.expired()) return text.status();
    if (TUTTI_TRY(store.check({keys::end(roster.round)})))
      return Error{.code = Code::kAborted, .detail = "it has ended before the store had its successor"};
  }
}

std::string StoreEndpoint::unix_address_of(const std::string& store) {
  for (StoreServer* const server : {server_.get(), round_server_.get()}) {
    if (server == nullptr || to_string(server->address()) != store) continue;
    const auto address = server->unix_address();
    if (address.ok()) return to_string(*address);
    options_.say("the ranks of this node reach the store by TCP alone: " + to_string(address.error()));
  }
  return {};
}

void StoreEndpoint::take(StorePair pair, std::unique_ptr<Store>& store) {
  if (pair.successor.empty() && pair_.round < 0) return;  // as the command line said
  const bool others = pair.servers != pair_.servers;
  pair_ = std::move(pair);
  if (!others) return;
  if (auto next = connect(Deadline::after(kPlaceCallLimit)); next.ok()) store = *std::move(next);
}

void StoreEndpoint::learn(std::unique_ptr<Store>& store) {
  if (!limits_of(options_).succession) return;
  const auto there = store->check({keys::kStore});
  if (!there.ok() || !*there) return;
  const auto text = store->get(keys::kStore, Deadline::after(kPlaceCallLimit));
  auto pair = text.ok() ? parse_store_pair(*text) : std::nullopt;
  if (pair && pair->round > pair_.round) take(*std::move(pair), store);
}

void StoreEndpoint::back_to_primary() {
  voter_.reset();
  primary_lost_ = false;
}

std::string StoreEndpoint::why_nobody_serves() const {
  return "both nodes that have the store are lost, or the network is cut and fewer than a majority of the nodes of the "
         "last round are on this side (of two nodes one is no majority): a minority never goes on";
}

void StoreEndpoint::primary_is_lost(bool ended) {
  primary_lost_ = true;
  if (successor_) return successor_->primary_is_lost(ended);
  if (server_ || voter_ || pair_.successor.empty()) return;
  auto voter = Heartbeat::open(pair_.box, number_of(id_), options_.credentials, times(),
                               [ballot = ballot_, candidate = number_of(pair_.successor)](std::int32_t round) {
                                 return ballot->give(round, candidate);
                               });
  if (voter.ok()) voter_ = *std::move(voter);
}

// Ranks speak our own protocol: where etcd is the nodes' store, node 0 serves another one for the ranks of each round.
Result<std::string> StoreEndpoint::settle_etcd(const Participants& roster, Store& store) {
  const std::string key = keys::store(roster.round);
  round_server_.reset();  // until now others may have read there what ended the last round
  if (roster.nodes.front().id == id_) {
    round_server_ = TUTTI_TRY(StoreServer::start({.host = local_address_}, options_.credentials));
    TUTTI_TRY(store.set(key, to_string(round_server_->address())));
  }
  return store.get(key, Deadline::after(options_.timeout));
}

}  // namespace tutti
