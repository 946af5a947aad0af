// Four steps, each of which explains its own errors: who am I (identity), the secret that lets me in (job_secret),
// reach the store (reach_store), exchange the identities of all ranks (assembly).
#include "tutti/rendezvous/join.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "tutti/base/deadline.h"
#include "tutti/base/env.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/rendezvous/assembly.h"
#include "tutti/rendezvous/identity.h"
#include "tutti/rendezvous/job_secret.h"
#include "tutti/rendezvous/reach_store.h"
#include "tutti/store/prefix_store.h"
#include "tutti/store/server/server.h"
#include "tutti/transport/address.h"

namespace tutti::rendezvous {
namespace {

// The first host of a PBS_NODEFILE, which has one host a line.
Result<std::string> first_host_in(const std::string& path) {
  std::ifstream file(path);
  std::string host;
  if (file >> host) return host;
  return Error{.code = Code::kUsage,
               .detail = "PBS_NODEFILE is \"" + path + "\", which has no host in it or cannot be read",
               .hint = "set MASTER_ADDR to the address of rank 0's host on every rank"};
}

// Fills in what identify() cannot know, for it reads no files: the path of the socket of a job on this host, the first
// host in a file.
Status complete(Identity& identity, const Environment& environment) {
  if (identity.method == RendezvousMethod::kUnix && !identity.address.is_unix())
    identity.address = transport::Address{.path = TUTTI_TRY(runtime_directory(environment)) + "/" +
                                                  file_name_of(identity.job) + ".sock"};
  if (identity.method == RendezvousMethod::kPorts && identity.address.host.empty())
    identity.address.host = TUTTI_TRY(first_host_in(identity.path));
  if (identity.method == RendezvousMethod::kTcp && identity.one_host == Identity::OneHost::kUnknown) {
    // Other hosts do not dial loopback. A name may be loopback here only, so it proves nothing.
    if (is_loopback_text(identity.address)) identity.one_host = Identity::OneHost::kYes;
  }
  return {};
}

// Whether only processes of this machine can reach the store.
bool is_closed(const Identity& identity) {
  if (identity.one_host == Identity::OneHost::kYes) return true;
  if (identity.method != RendezvousMethod::kTcp || identity.one_host == Identity::OneHost::kNo) return false;
  const auto places = resolve(identity.address);
  return places.ok() && std::all_of(places->begin(), places->end(),
                                    [](const transport::Address& place) { return transport::is_loopback(place); });
}

Result<JobSecret> secret_of(const Identity& identity, const Environment& environment) {
  using OneHost = Identity::OneHost;
  // An agent that serves has given its secret; a rank never makes its own.
  if (identity.method == RendezvousMethod::kAgent) {
    if (auto given = TUTTI_TRY(given_secret(environment))) return JobSecret{*given, {}};
    return Error{.code = Code::kUsage,
                 .detail =
                     "TUTTI_STORE is set, but not the secret of that store (TUTTI_SECRET_FD, "
                     "TUTTI_SECRET_FILE or TUTTI_SECRET)",
                 .hint =
                     "a program between tutti run and this one drops variables; or TUTTI_STORE is left from an earlier "
                     "job: unset it"};
  }
  if (identity.one_host != OneHost::kNo && identity.method == RendezvousMethod::kTcp &&
      !TUTTI_TRY(given_secret(environment)).has_value()) {
    // Neither "closed" nor "open to others" is true of a name that means nothing.
    if (const auto places = resolve(identity.address); !places.ok()) {
      Error error = places.error();
      error.detail += " (the place is from " + identity.address_source + ")";
      return error;
    }
  }
  const std::string why_not = identity.one_host == OneHost::kNo ? "its ranks are on several hosts"
                                                                : "other hosts can reach " + identity.address.host +
                                                                      " (from " + identity.address_source + ")";
  return job_secret(environment, identity.job, is_closed(identity), why_not);
}

// `secret`: where it is kept meanwhile.
Result<Membership> join_world(const Identity& identity, const Environment& environment, Deadline deadline,
                              std::optional<JobSecret>& secret) {
  Membership member;
  member.rank = identity.rank;
  member.world_size = identity.world_size;
  member.local_rank = identity.local_rank;
  member.local_world_size = identity.local_world_size;
  member.job = identity.job;
  member.generation = identity.generation;
  member.started_by = identity.started_by;
  member.credentials.job = identity.job;
  member.credentials.generation = identity.generation;
  if (identity.world_size == 1) {
    member.credentials.secret = transport::Secret::random();
    return member;
  }

  ReachedStore point;
  if (identity.method == RendezvousMethod::kFile) {
    const auto given = TUTTI_TRY(given_secret(environment));
    if (given) member.credentials.secret = *given;
    member.store_credentials = member.credentials;
    point = TUTTI_TRY(reach_store_file(identity, member.store_credentials, given.has_value(), deadline));
    member.credentials.secret = member.store_credentials.secret;
  } else {
    secret = TUTTI_TRY(secret_of(identity, environment));
    member.credentials.secret = secret->secret;
    member.store_credentials = member.credentials;
    if (identity.method == RendezvousMethod::kAgent) member.store_credentials.generation = 0;
    point = TUTTI_TRY(reach_served_store(identity, member.store_credentials, deadline));
  }
  if (const std::string warning = member.credentials.secret.warning(); identity.rank == 0 && !warning.empty())
    log::warn(warning);
  // The server goes last, so that an error below still reaches the others.
  member.server = std::move(point.server);
  auto store =
      std::make_unique<PrefixStore>("generation-" + std::to_string(identity.generation), std::move(point.store));
  if (const auto wanted = lookup(environment, "TUTTI_IFACE")) {
    auto host = transport::address_at(*wanted);
    if (!host.ok()) {
      Error error = host.error();
      error.detail += " (from TUTTI_IFACE)";
      return error;
    }
    point.local_host = *std::move(host);
  }
  const auto world =
      TUTTI_TRY(assemble(*store, rank_info_of(identity, point.local_host), deadline, to_string(point.address)));
  TUTTI_TRY(check_builds(world, lookup(environment, "TUTTI_MIXED_BUILDS").value_or("0") == "1"));
  TUTTI_TRY(check_addresses(world));
  if (identity.rank == 0 && secret && !secret->file.empty()) (void)::unlink(secret->file.c_str());  // all have read it
  member.store = std::move(store);
  member.store_address = point.address;
  member.stores = std::move(point.stores);
  member.local_host = point.local_host;
  return member;
}

}  // namespace

Membership::Membership() = default;
Membership::Membership(Membership&&) noexcept = default;
Membership& Membership::operator=(Membership&&) noexcept = default;
Membership::~Membership() = default;

Result<Membership> join(const JoinOptions& options) {
  const Deadline deadline = Deadline::after(options.timeout);
  const Environment environment = current_environment();
  const CallArguments call{.url = options.url, .rank = options.rank, .world_size = options.world_size};
  auto identity = identify(call, environment);
  if (!identity.ok()) return identity.status();
  if (!identity->note.empty()) log::info(identity->note);
  if (identity->rank == 0 && identity->started_by != "tutti run")  // which says it itself
    for (const std::string& misspelt : misspelt_variables(environment)) log::warn(misspelt);
  if (const Status done = complete(*identity, environment); !done.ok()) return joining_error(done.error(), *identity);
  std::optional<JobSecret> secret;
  auto member = join_world(*identity, environment, deadline, secret);
  if (!member.ok()) {
    if (secret) secret->give_up();
    return joining_error(member.error(), *identity);
  }
  return member;
}

}  // namespace tutti::rendezvous
