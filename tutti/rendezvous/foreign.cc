// What rank 0 leaves is one note, which it replaces by its error if it gives up. The other ranks of its machine dial
// the Unix socket; all others try its addresses, of which those of a bridge or a second network lead nowhere. The
// address that led somewhere is then that of rank 0's machine for everybody.
#include "tutti/rendezvous/foreign.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutti/base/env.h"
#include "tutti/base/log.h"
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
constexpr Duration kFirstWait = std::chrono::seconds(1), kLongestWait = std::chrono::seconds(5);
constexpr double kQuietWait = 30;                        // seconds, after which the log names who is missing
constexpr int kMostChecked = 64;                         // ranks for which one rank looks in the store
constexpr const char* kReachedAt = "join/rank_0_is_at";  // the address that led to rank 0 from another machine

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
    if (json.contains("detail")) return decode_trouble(text);
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

// Who has come to a world, as far as the other library's store shows.
class Arrivals {
 public:
  Arrivals(const ForeignStore& store, const ForeignWorld& world) : store_(store), world_(world) {}

  // This rank has come, for the first or a later time under this name.
  std::int64_t add_this_rank() { return turn_ = store_.add(joined_key(world_.rank)); }
  std::string note_key() const { return base_ + "/" + std::to_string(turn_); }

  // Names a rank that uses the other backend in place of tutti: among all ranks, or rank 0 alone. Entries of an earlier
  // time, when all ranks used the other backend in this store, would look the same: this rank has one, too, then.
  std::optional<Error> stranger(bool among_all) const {
    const auto uses_other = [&](int rank) { return has(world_.other_key + std::to_string(rank)); };
    if (world_.other_backend.empty() || uses_other(world_.rank)) return std::nullopt;
    for (int rank = 0; rank < (among_all ? std::min(world_.world_size, kMostChecked) : 1); ++rank)
      if (rank != world_.rank && uses_other(rank) && !has(joined_key(rank)))
        return Error{.code = Code::kMismatch,
                     .detail = "rank " + std::to_string(rank) + " uses the backend " + world_.other_backend + " of " +
                               world_.library + ", and this rank tutti",
                     .hint = "give all ranks the same backend"};
    return std::nullopt;
  }

  // "rank 1 of 3 did not join", as far as it is known. A rank that came to an earlier world only counts as come.
  std::string absent_ranks() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < std::min(world_.world_size, kMostChecked); ++rank)
      if (rank != world_.rank && (store_.has ? !has(joined_key(rank)) : rank == 0)) ranks.push_back(rank);
    if (ranks.empty()) ranks.push_back(0);  // it has come, but left no note
    return ranks_words(ranks) + " of " + std::to_string(world_.world_size) + " did not join";
  }

 private:
  std::string joined_key(int rank) const { return base_ + "/joined/" + std::to_string(rank); }
  bool has(const std::string& key) const { return store_.has && store_.has(key); }

  const ForeignStore& store_;
  const ForeignWorld& world_;
  const std::string base_ = "tutti/" + world_.name;
  std::int64_t turn_ = 0;
};

Error never_came(const Arrivals& arrivals, Deadline deadline) {
  return deadline.error(arrivals.absent_ranks(), "does every rank use the backend tutti, and has none ended?");
}

// What rank 0 has left, once it has. A store reports the end of a wait as it reports any failure, so time tells.
Result<Note> wait_for_note(const ForeignStore& store, const Arrivals& arrivals, Deadline deadline) {
  double next_line = kQuietWait;
  for (Duration slice = kFirstWait;; slice = std::min(2 * slice, kLongestWait)) {
    const auto asked = now();
    const Duration limit = deadline.at_most(slice).remaining();
    try {
      return decode_note(store.get(arrivals.note_key(), limit));
    } catch (const std::exception&) {
      if (now() - asked < limit * 9 / 10) throw;
    }
    if (const auto stranger = arrivals.stranger(/*among_all=*/false)) return *stranger;
    if (deadline.expired()) return never_came(arrivals, deadline);
    if (deadline.waited() < next_line) continue;
    log::warn("waiting for rank 0, " + seconds_text(deadline.waited()) + " of " + seconds_text(deadline.limit()) +
              " so far: " + arrivals.absent_ranks());
    next_line *= 2;
  }
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
                          Deadline deadline, const std::function<Status()>& has_given_up) {
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
    if (const Status status = has_given_up(); !status.ok()) return status;
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
  Arrivals arrivals(store, world);
  Result<ReachedStore> reached = ReachedStore();
  try {  // each rank counts the worlds of this name, so that none takes the note of an earlier one
    arrivals.add_this_rank();
  } catch (const std::exception& thrown) {
    return explained(trouble_of(world, thrown));
  }
  if (world.rank == 0) {
    reached = serve(store, world, member.credentials, arrivals.note_key());
  } else {
    try {
      const auto note = wait_for_note(store, arrivals, deadline);
      if (!note.ok()) return explained(note.error());
      member.credentials = {.secret = transport::Secret::from_text(note->secret), .job = note->job};
      reached = dial(*note, member.credentials, world, deadline,
                     [&]() -> Status { return decode_note(store.get(arrivals.note_key(), kOneAddress)).status(); });
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
  const auto stranger = [&]() -> std::optional<Error> {
    try {
      return world.rank == 0 ? arrivals.stranger(/*among_all=*/true) : std::nullopt;
    } catch (const std::exception&) {
      return std::nullopt;  // the wait for the other ranks will tell
    }
  };
  const auto all = assemble(*reached->store, rank_info_of(identity, reached->local_host), deadline, {}, stranger);
  if (!all.ok()) {
    Error error = all.error();
    if (error.code == Code::kTimeout) error.hint = "does every rank use the backend tutti? " + error.hint;
    try {
      if (world.rank == 0) store.set(arrivals.note_key(), encode_trouble(error));
    } catch (const std::exception&) {  // a rank that comes later waits in vain, then
    }
    return explained(std::move(error));
  }
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
