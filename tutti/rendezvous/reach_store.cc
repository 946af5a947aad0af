// Rank 0 serves and the other ranks connect; under an agent all ranks connect. They start in any order, so connecting
// is patient. An error that waiting will not mend ends it at once: a foreign job at the address, an address that is not
// this machine's.
//
// Strangers may hold derived ports. Rank 0 then takes the next port of the list, and the other ranks go round the list
// until a server accepts them: the handshake tells our own job from any other program.
//
// An agent also serves at a Unix socket, which carries a third more calls a second than TCP on the same cores; the
// ranks of its host use it if they can.
//
// A store file belongs to rank 0, which removes it at the end; the other ranks wait until rank 0 has made it. The file
// has mode 0600, so its reader is this user: rank 0 puts a secret for the job's own connections into it, unless the
// user gave one.
#include "tutti/rendezvous/reach_store.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/rendezvous/job_secret.h"
#include "tutti/store/file_store.h"
#include "tutti/store/tcp_store.h"
#include "tutti/transport/socket.h"

namespace tutti::rendezvous {
namespace {

std::string of_this_machine() { return "this machine has " + tutti::join(transport::local_addresses(), ", "); }

std::string hosts_file() {
  std::ifstream file("/etc/hosts");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

constexpr const char* kSecretKey = "join/secret";

constexpr Duration kFirstTry = std::chrono::milliseconds(50), kLongestTry = std::chrono::seconds(1);
constexpr double kReportEvery = 5;

std::string ports_text(const std::vector<std::uint16_t>& ports) {
  std::vector<std::string> words;
  for (const auto port : ports) words.push_back(std::to_string(port));
  return tutti::join(words, ", ");
}

Result<ReachedStore> served_by_us(std::unique_ptr<StoreServer> server) {
  ReachedStore point;
  point.address = server->address();
  point.stores = {point.address};
  point.local_host = point.address.host;
  point.store = server->local();
  point.server = std::move(server);
  return point;
}

Result<ReachedStore> serve(const Identity& identity, const transport::Credentials& credentials) {
  if (identity.method == RendezvousMethod::kUnix)
    return served_by_us(TUTTI_TRY(StoreServer::start(identity.address, credentials)));
  const auto places = TUTTI_TRY(serving_addresses(identity.address, identity.address_source, identity.one_host));
  if (identity.method == RendezvousMethod::kTcp) {
    auto server = StoreServer::start(places.front(), credentials);
    if (server.ok()) return served_by_us(*std::move(server));
    Error error = server.error();
    if (error.code == Code::kAddressInUse)
      error.hint =
          "another job may use the same " + identity.address_source + ": end it, or give this one another port";
    return error;
  }
  std::vector<std::string> reasons;
  for (const std::uint16_t port : identity.ports) {
    transport::Address place = places.front();
    place.port = port;
    auto server = StoreServer::start(place, credentials);
    if (server.ok()) return served_by_us(*std::move(server));
    if (server.error().code != Code::kAddressInUse) return server.status();
    reasons.push_back(server.error().detail);
  }
  return Error{.code = Code::kAddressInUse,
               .detail = "all ports that follow from the name of the job are taken: " + tutti::join(reasons, "; "),
               .hint = "give the job another name with TUTTI_JOB, or a free port with MASTER_ADDR and MASTER_PORT"};
}

// Adds what the user needs besides: where the address came from, and the usual reason.
Error explain(Error error, const Identity& identity) {
  if (!identity.address_source.empty() && error.code != Code::kUsage)
    error.detail += " (the place is from " + identity.address_source + ")";
  if (error.code == Code::kUnreachable && identity.method != RendezvousMethod::kUnix) {
    const auto places = resolve(identity.address);
    if (places.ok() && !identity.address.is_unix() && identity.one_host != Identity::OneHost::kYes &&
        std::all_of(places->begin(), places->end(),
                    [](const transport::Address& place) { return transport::is_loopback(place); }))
      error.hint += std::string(error.hint.empty() ? "" : "; ") + identity.address.host +
                    " is this machine: if rank 0 runs on another one, give its address";
  }
  return error;
}

Result<ReachedStore> reached(std::unique_ptr<TcpStore> store) {
  ReachedStore point;
  point.address = store->server();
  point.stores = store->servers();
  point.local_host = store->local_address().host;
  point.store = std::move(store);
  return point;
}

// By the Unix socket of a store on this host; none where it cannot be reached: on another host, in a container with a
// network of its own, as another user. The store is known by its TCP address all the same: to all ranks alike, in words
// too, and who is on its host has that address itself.
Result<std::optional<ReachedStore>> dial_here(const Identity& identity, const transport::Credentials& credentials,
                                              Deadline deadline) {
  const transport::Address& socket = identity.unix_store;
  if (!socket.is_unix() || !connect(socket, deadline.at_most(kFirstTry)).ok()) return std::optional<ReachedStore>();
  auto store = TcpStore::connect(socket, credentials, identity.rank, deadline);
  if (!store.ok() && store.error().code == Code::kPeerLost) return std::optional<ReachedStore>();  // we are strangers
  ReachedStore point = TUTTI_TRY(reached(TUTTI_TRY(std::move(store))));
  point.address = identity.address;
  point.local_host = identity.address.host;
  return std::optional(std::move(point));
}

Result<ReachedStore> dial(const Identity& identity, const transport::Credentials& credentials, Deadline deadline) {
  auto here = dial_here(identity, credentials, deadline);
  if (!here.ok()) return explain(here.error(), identity);
  if (*here) return **std::move(here);
  auto store =
      TcpStore::connect(identity.stores.empty() ? std::vector<transport::Address>{identity.address} : identity.stores,
                        credentials, identity.rank, deadline);
  if (!store.ok()) return explain(store.error(), identity);
  return reached(*std::move(store));
}

Result<ReachedStore> dial_round(const Identity& identity, const transport::Credentials& credentials,
                                Deadline deadline) {
  std::optional<Error> stranger;  // somebody else at one of the ports
  double next_report = kReportEvery;
  const std::string where = "ports " + ports_text(identity.ports) + " of " + identity.address.host;
  for (Duration limit = kFirstTry;; limit = std::min(limit * 2, kLongestTry)) {
    for (const std::uint16_t port : identity.ports) {
      const transport::Address place{.host = identity.address.host, .port = port};
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

Result<ReachedStore> reach_served_store(const Identity& identity, const transport::Credentials& credentials,
                                        Deadline deadline) {
  if (identity.method != RendezvousMethod::kAgent && identity.rank == 0) return serve(identity, credentials);
  if (identity.method == RendezvousMethod::kPorts && identity.ports.size() > 1)
    return dial_round(identity, credentials, deadline);
  Identity one = identity;
  if (identity.method == RendezvousMethod::kPorts) one.address.port = identity.ports.front();
  return dial(one, credentials, deadline);
}

Error joining_error(Error error, const Identity& identity) {
  if (error.operation.empty() || error.rank < 0) error.rank = identity.rank;
  if (error.operation.empty()) error.operation = "join";
  return error;
}

Result<ReachedStore> reach_store_file(const Identity& identity, transport::Credentials& credentials, bool secret_given,
                                      Deadline deadline) {
  const bool owner = identity.rank == 0;
  ReachedStore point;
  auto store =
      owner ? FileStore::create(identity.path, identity.job) : FileStore::join(identity.path, identity.job, deadline);
  if (!store.ok()) {
    Error error = store.error();
    error.detail += " (the place is from " + identity.address_source + ")";
    return error;
  }
  point.store = *std::move(store);
  if (!secret_given) {
    if (owner) TUTTI_TRY(point.store->set(kSecretKey, transport::random_secret_text()));
    credentials.secret = transport::Secret::from_text(TUTTI_TRY(point.store->get(kSecretKey, deadline)));
  }
  return point;
}

// ---- where rank 0 serves ----

// The trap: Debian and Ubuntu write "127.0.1.1 <host name>" into /etc/hosts. On that machine the name resolves to
// loopback, elsewhere to the real address; rank 0 would bind the one and the others dial the other. So loopback is the
// last choice for a name. Where the ranks are known to be on several hosts, rank 0 serves at the address that the other
// hosts most likely have for it. Where that is not known, loopback is worth a warning.

std::string address_for_others() {
  std::vector<std::string> outward = transport::local_addresses();
  std::erase_if(outward, [](const std::string& host) {
    return host.find(':') != std::string::npos || host.starts_with("169.254.") ||
           transport::is_loopback(transport::Address{.host = host});
  });
  if (outward.size() < 2) return outward.empty() ? std::string() : outward.front();
  const std::string interface = transport::interface_towards("192.0.2.1");  // nobody has it; nothing is sent
  const auto routed = transport::address_at(interface);
  return interface.empty() || !routed.ok() ? std::string() : *routed;
}

std::string loopback_line(const std::string& name, const std::string& hosts_text) {
  int number = 0;
  for (const std::string& line : split(hosts_text, '\n')) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string address, word;
    words >> address;
    if (address.empty() || !transport::is_loopback(transport::Address{.host = address})) continue;
    while (words >> word)
      if (word == name) return std::string(trim(line)) + " (line " + std::to_string(number) + " of /etc/hosts)";
  }
  return {};
}

bool is_loopback_text(const transport::Address& address) {
  return address.host == "localhost" || transport::is_loopback(address);
}

Result<std::vector<transport::Address>> serving_addresses(const transport::Address& wanted, const std::string& source,
                                                          Identity::OneHost one_host) {
  const auto usage = [](std::string detail, std::string hint) {
    return Error{.code = Code::kUsage, .detail = std::move(detail), .hint = std::move(hint)};
  };
  std::vector<transport::Address> all = TUTTI_TRY(resolve(wanted));
  const std::string& first = all.front().host;
  const std::string what = wanted.host == first ? first : wanted.host + ", which is " + first + " here";
  if (std::any_of(all.begin(), all.end(), transport::is_wildcard))
    return usage("rank 0 is to serve at " + wanted.host + " (" + source +
                     "), which is not an address that other ranks can connect to",
                 "give one address; " + of_this_machine());
  std::erase_if(all, [](const transport::Address& address) { return !transport::is_local_address(address.host); });
  if (all.empty())
    return usage(
        "rank 0 is to serve at " + what + " (" + source + "), but that is not an address of this machine",
        "start rank 0 on the machine that " + source + " names, or correct " + source + "; " + of_this_machine());
  // Outward before loopback, IPv4 before IPv6: `localhost` must be the same to all.
  std::stable_sort(all.begin(), all.end(), [](const transport::Address& a, const transport::Address& b) {
    return std::pair(transport::is_loopback(a), a.is_v6()) < std::pair(transport::is_loopback(b), b.is_v6());
  });
  if (one_host == Identity::OneHost::kYes || !transport::is_loopback(all.front())) return all;
  const std::string line = loopback_line(wanted.host, hosts_file());
  const bool names_this_host = !line.empty() && wanted.host != "localhost" && !wanted.host.starts_with("ip6-");
  if (one_host == Identity::OneHost::kNo && names_this_host) {
    if (const std::string mine = address_for_others(); !mine.empty()) {
      log::warn("rank 0 serves at " + mine + ": the line \"" + line + "\" hides the address of " + wanted.host +
                "; if the other hosts have another address for it, change the line or give an address (" + source +
                ")");
      return std::vector{transport::Address{.host = mine, .port = wanted.port}};
    }
  }
  if (one_host == Identity::OneHost::kNo)
    return usage("rank 0 would advertise the loopback address " + what + " (" + source +
                     "), which the ranks on other hosts cannot reach",
                 (line.empty() ? "give an address" : "change the line \"" + line + "\", or give an address") +
                     " that they can reach; " + of_this_machine());
  if (names_this_host)
    log::warn("rank 0 serves at " + what + ": ranks on other machines cannot reach it, because of the line \"" + line +
              "\"");
  return all;
}

}  // namespace tutti::rendezvous
