// Rank 0 serves, the others dial; under an agent all dial. Nobody knows who starts first, so dialling is patient, but
// what waiting will not heal ends it at once: a foreign job at the place, a place that is not this machine's.
//
// Derived ports may be taken by strangers. Rank 0 then takes the next of the list, and who dials goes round the list
// until one lets it in: the handshake tells our own job from any other program.
//
// An agent serves at a Unix socket too, which carries a third more calls a second than TCP on the same cores; the ranks
// of its host take that way if they can.
#include <algorithm>

#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/rendezvous/reach_store.h"
#include "tutti/store/tcp_store.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

constexpr Duration kFirstTry = std::chrono::milliseconds(50), kLongestTry = std::chrono::seconds(1);
constexpr double kReportEvery = 5;

std::string ports_text(const std::vector<std::uint16_t>& ports) {
  std::vector<std::string> words;
  for (const auto port : ports) words.push_back(std::to_string(port));
  return join(words, ", ");
}

Result<MeetingPoint> served_by_us(std::unique_ptr<StoreServer> server) {
  MeetingPoint point;
  point.address = server->address();
  point.stores = {point.address};
  point.local_host = point.address.host;
  point.store = server->local();
  point.server = std::move(server);
  return point;
}

Result<MeetingPoint> serve(const Identity& identity, const Credentials& credentials) {
  if (identity.meeting == Meeting::kLocal)
    return served_by_us(TUTTI_TRY(StoreServer::start(identity.address, credentials)));
  const auto places = TUTTI_TRY(serving_addresses(identity.address, identity.meeting_source, identity.one_host));
  if (identity.meeting == Meeting::kTcp) {
    auto server = StoreServer::start(places.front(), credentials);
    if (server.ok()) return served_by_us(*std::move(server));
    Error error = server.error();
    if (error.code == Code::kAddressInUse)
      error.hint =
          "another job may use the same " + identity.meeting_source + ": end it, or give this one another port";
    return error;
  }
  std::vector<std::string> reasons;
  for (const std::uint16_t port : identity.ports) {
    Address place = places.front();
    place.port = port;
    auto server = StoreServer::start(place, credentials);
    if (server.ok()) return served_by_us(*std::move(server));
    if (server.error().code != Code::kAddressInUse) return server.status();
    reasons.push_back(server.error().detail);
  }
  return Error{.code = Code::kAddressInUse,
               .detail = "all ports that follow from the name of the job are taken: " + join(reasons, "; "),
               .hint = "give the job another name with TUTTI_JOB, or a free port with MASTER_ADDR and MASTER_PORT"};
}

// What a person needs beside the bare fact: where the place came from, and the classical reason.
Error explain(Error error, const Identity& identity) {
  if (!identity.meeting_source.empty() && error.code != Code::kUsage)
    error.detail += " (the place is from " + identity.meeting_source + ")";
  if (error.code == Code::kUnreachable && identity.meeting != Meeting::kLocal) {
    const auto places = resolve(identity.address);
    if (places.ok() && !identity.address.is_unix() && identity.one_host != Identity::OneHost::kYes &&
        std::all_of(places->begin(), places->end(), [](const Address& place) { return is_loopback(place); }))
      error.hint += std::string(error.hint.empty() ? "" : "; ") + identity.address.host +
                    " is this very machine: if rank 0 runs on another one, give its address";
  }
  return error;
}

Result<MeetingPoint> reached(std::unique_ptr<TcpStore> store) {
  MeetingPoint point;
  point.address = store->server();
  point.stores = store->servers();
  point.local_host = store->local_address().host;
  point.store = std::move(store);
  return point;
}

// By the Unix socket of a store on this host; none where it cannot be reached: on another host, in a container with a
// network of its own, as another user. The store is known by its TCP address all the same: to all ranks alike, in words
// too, and who is on its host has that address itself.
Result<std::optional<MeetingPoint>> dial_here(const Identity& identity, const Credentials& credentials,
                                              Deadline deadline) {
  const Address& socket = identity.unix_store;
  if (!socket.is_unix() || !connect(socket, deadline.at_most(kFirstTry)).ok()) return std::optional<MeetingPoint>();
  auto store = TcpStore::connect(socket, credentials, identity.rank, deadline);
  if (!store.ok() && store.error().code == Code::kPeerLost) return std::optional<MeetingPoint>();  // we are strangers
  MeetingPoint point = TUTTI_TRY(reached(TUTTI_TRY(std::move(store))));
  point.address = identity.address;
  point.local_host = identity.address.host;
  return std::optional(std::move(point));
}

Result<MeetingPoint> dial(const Identity& identity, const Credentials& credentials, Deadline deadline) {
  auto here = dial_here(identity, credentials, deadline);
  if (!here.ok()) return explain(here.error(), identity);
  if (*here) return **std::move(here);
  auto store = TcpStore::connect(identity.stores.empty() ? std::vector<Address>{identity.address} : identity.stores,
                                 credentials, identity.rank, deadline);
  if (!store.ok()) return explain(store.error(), identity);
  return reached(*std::move(store));
}

Result<MeetingPoint> dial_round(const Identity& identity, const Credentials& credentials, Deadline deadline) {
  std::optional<Error> stranger;  // somebody else at one of the ports
  double next_report = kReportEvery;
  const std::string where = "ports " + ports_text(identity.ports) + " of " + identity.address.host;
  for (Duration limit = kFirstTry;; limit = std::min(limit * 2, kLongestTry)) {
    for (const std::uint16_t port : identity.ports) {
      const Address place{.host = identity.address.host, .port = port};
      auto store = TcpStore::connect(place, credentials, identity.rank, deadline.at_most(limit));
      if (store.ok()) return reached(*std::move(store));
      const Code code = store.error().code;
      if (code == Code::kRefused || code == Code::kPeerLost)
        stranger = store.error();
      else if (code != Code::kUnreachable && code != Code::kTimeout)
        return explain(store.error(), identity);
    }
    if (deadline.expired()) {
      Error error = deadline.error(
          "rank 0 was not found at " + where + (stranger ? " (" + stranger->detail + ")" : ""),
          "is rank 0 running on " + identity.address.host + "? Else set MASTER_ADDR to its host on every rank");
      error.code = Code::kUnreachable;
      return explain(std::move(error), identity);
    }
    if (deadline.waited() < next_report) continue;
    log::info("looking for rank 0 at " + where + " after " + seconds_text(deadline.waited()) + " of " +
              seconds_text(deadline.limit()));
    next_report += kReportEvery;
  }
}

}  // namespace

Result<MeetingPoint> meet_at_server(const Identity& identity, const Credentials& credentials, Deadline deadline) {
  if (identity.meeting != Meeting::kServed && identity.rank == 0) return serve(identity, credentials);
  if (identity.meeting == Meeting::kPorts && identity.ports.size() > 1)
    return dial_round(identity, credentials, deadline);
  Identity one = identity;
  if (identity.meeting == Meeting::kPorts) one.address.port = identity.ports.front();
  return dial(one, credentials, deadline);
}

Error joining_error(Error error, const Identity& identity) {
  if (error.operation.empty() || error.rank < 0) error.rank = identity.rank;
  if (error.operation.empty()) error.operation = "join";
  return error;
}

}  // namespace tutti
