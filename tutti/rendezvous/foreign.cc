// What rank 0 leaves is one note. The other ranks of its machine dial the Unix socket; all others try its addresses, of
// which those of a bridge or a second network lead nowhere. The address that led somewhere is then that of rank 0's
// machine for everybody.
#include "tutti/rendezvous/foreign.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutti/base/env.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/rendezvous/assembly.h"
#include "tutti/rendezvous/identity.h"
#include "tutti/rendezvous/reach_store.h"
#include "tutti/store/prefix_store.h"
#include "tutti/store/tcp_store.h"

namespace tutti::rendezvous {
namespace {

constexpr Duration kOneAddress = std::chrono::seconds(3);  // to reach rank 0 at one of its addresses
constexpr const char* kReachedAt = "join/rank_0_is_at";    // the address that led to rank 0 from another machine

struct Note {
  std::string job, secret, machine, unix_socket;
  std::vector<std::string> addresses;
};

std::string encode_note(const Note& note) {
  return nlohmann::json{{"job", note.job},
                        {"secret", note.secret},
                        {"machine", note.machine},
                        {"unix", note.unix_socket},
                        {"addresses", note.addresses}}
      .dump();
}

Result<Note> decode_note(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    return Note{.job = json.at("job"),
                .secret = json.at("secret"),
                .machine = json.at("machine"),
                .unix_socket = json.at("unix"),
                .addresses = json.at("addresses").get<std::vector<std::string>>()};
  } catch (const nlohmann::json::exception&) {
    return Error{.code = Code::kMismatch,
                 .detail = "rank 0 wrote no entry of tutti under the key of this world",
                 .hint = "do all ranks run the same release of tutti?"};
  }
}

Error trouble_of(const ForeignWorld& world, const std::exception& thrown) {
  return Error{.code = Code::kUnreachable, .detail = "the store of " + world.library + " failed: " + thrown.what()};
}

// TUTTI_IFACE, or all addresses of this machine: loopback only helps ranks here, and these have the Unix socket.
Result<std::vector<std::string>> own_addresses() {
  if (const auto wanted = env("TUTTI_IFACE")) {
    auto host = transport::address_at(*wanted);
    if (host.ok()) return std::vector<std::string>{*host};
    Error error = host.error();
    error.detail += " (from TUTTI_IFACE)";
    return error;
  }
  std::vector<std::string> hosts = transport::local_addresses();
  std::erase_if(hosts, [](const std::string& host) { return transport::is_loopback({.host = host}); });
  return hosts;
}

Result<ReachedStore> serve(const ForeignStore& store, const ForeignWorld& world, transport::Credentials& credentials,
                           const std::string& key) {
  Note note{.secret = transport::random_secret_text(), .machine = machine_id()};
  note.job = world.name + "-" + note.secret.substr(0, 8);
  credentials = {.secret = transport::Secret::from_text(note.secret), .job = note.job};
  const std::vector<std::string> hosts = TUTTI_TRY(own_addresses());
  transport::Address bind{.host = "127.0.0.1"};
  if (hosts.size() == 1) bind.host = hosts.front();
  if (hosts.size() > 1) {
    const bool v6_only = std::all_of(hosts.begin(), hosts.end(),
                                     [](const std::string& host) { return host.find(':') != std::string::npos; });
    bind.host = v6_only ? "::" : "0.0.0.0";
  }
  ReachedStore reached;
  reached.server = TUTTI_TRY(StoreServer::start(bind, credentials));
  reached.address = reached.server->address();
  note.unix_socket = to_string(TUTTI_TRY(reached.server->unix_address()));
  for (const std::string& host : hosts)
    if (bind.host != "0.0.0.0" || host.find(':') == std::string::npos)
      note.addresses.push_back(to_string(transport::Address{.host = host, .port = reached.address.port}));
  reached.store = reached.server->local();
  try {
    store.set(key, encode_note(note));
  } catch (const std::exception& thrown) {
    return trouble_of(world, thrown);
  }
  return reached;
}

Result<ReachedStore> reached_by(std::unique_ptr<TcpStore> store) {
  ReachedStore reached;
  reached.address = store->server();
  reached.stores = store->servers();
  if (!reached.address.is_unix()) reached.local_host = store->local_address().host;
  reached.store = std::move(store);
  return reached;
}

Result<ReachedStore> dial(const Note& note, const transport::Credentials& credentials, const ForeignWorld& world,
                          Deadline deadline) {
  if (note.machine == machine_id()) {  // fails in a container with a network of its own
    auto here = TcpStore::connect(TUTTI_TRY(transport::parse_address(note.unix_socket)), credentials, world.rank,
                                  deadline.at_most(kOneAddress));
    if (here.ok()) return reached_by(*std::move(here));
  }
  if (note.addresses.empty())
    return Error{.code = Code::kUnreachable,
                 .detail = "rank 0 has no address but loopback, and is on another machine",
                 .hint = "give rank 0's machine a network interface that is up"};
  std::optional<Error> last;
  for (std::size_t i = 0; i == 0 || !deadline.expired(); ++i) {
    const auto address = TUTTI_TRY(transport::parse_address(note.addresses[i % note.addresses.size()]));
    auto store = TcpStore::connect(address, credentials, world.rank, deadline.at_most(kOneAddress));
    if (store.ok()) return reached_by(*std::move(store));
    last = store.error();
  }
  last->detail += "; rank 0 may be reached at " + tutti::join(note.addresses, ", ");
  last->hint = "set TUTTI_IFACE on rank 0 to the interface or subnet that the other machines reach";
  return *last;
}

}  // namespace

Result<Membership> join_through(const ForeignStore& store, const ForeignWorld& world, Duration timeout) {
  const Deadline deadline = Deadline::after(timeout);
  const auto explained = [&](Error error) {
    if (error.operation.empty()) error.operation = "join";
    if (error.rank < 0) error.rank = world.rank;
    return error;
  };
  Membership member;
  member.rank = world.rank;
  member.world_size = world.world_size;
  member.started_by = world.library;
  if (world.world_size == 1) {
    member.job = world.name;
    member.credentials = {.secret = transport::Secret::random(), .job = world.name};
    return member;
  }
  std::string key = "tutti/" + world.name;
  Result<ReachedStore> reached = ReachedStore();
  try {  // each rank counts the worlds of this name, so that none takes the note of an earlier one
    key += "/" + std::to_string(store.add(key + "/joined/" + std::to_string(world.rank)));
  } catch (const std::exception& thrown) {
    return explained(trouble_of(world, thrown));
  }
  if (world.rank == 0) {
    reached = serve(store, world, member.credentials, key);
  } else {
    try {
      const auto note = decode_note(store.get(key, deadline.remaining()));
      if (!note.ok()) return explained(note.error());
      member.credentials = {.secret = transport::Secret::from_text(note->secret), .job = note->job};
      reached = dial(*note, member.credentials, world, deadline);
    } catch (const std::exception& thrown) {
      return explained(trouble_of(world, thrown));
    }
  }
  if (!reached.ok()) return explained(reached.error());
  member.store_credentials = member.credentials;
  member.job = member.credentials.job;
  member.server = std::move(reached->server);  // goes last, so that an error below still reaches the others
  const Identity identity{.rank = world.rank,
                          .world_size = world.world_size,
                          .rank_source = world.library,
                          .world_size_source = world.library,
                          .job = member.job,
                          .started_by = world.library};
  if (!reached->local_host.empty())
    if (const auto set = reached->store->compare_set(kReachedAt, std::nullopt, reached->address.host); !set.ok())
      return explained(set.error());
  const auto all = assemble(*reached->store, rank_info_of(identity, reached->local_host), deadline);
  if (!all.ok()) return explained(all.error());
  if (const Status same = check_builds(*all, env("TUTTI_MIXED_BUILDS").value_or("0") == "1"); !same.ok())
    return explained(same.error());
  if (reached->local_host.empty()) {  // on rank 0's machine
    const auto known = reached->store->check({kReachedAt});
    if (known.ok() && *known) reached->local_host = TUTTI_TRY(reached->store->get(kReachedAt, deadline));
  }
  member.store = std::move(reached->store);
  member.stores = std::move(reached->stores);
  member.store_address = reached->address;
  member.local_host = reached->local_host;
  return member;
}

}  // namespace tutti::rendezvous
