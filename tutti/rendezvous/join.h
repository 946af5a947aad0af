#pragma once
// How a rank joins its world: from "a process was started" to "this is rank 2 of 4, and here is the store that all
// ranks share". Works alike under tutti run, torchrun, mpirun and srun, by hand with variables or a URL, and alone.
//
// Rank, world size and the address of the store come from the URL, else from the call, else from the environment; two
// sources that contradict each other are an error that names both. URLs:
//   env://                                   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; also what no URL means
//   tcp://host:port?rank=0&world_size=2      rank 0 serves there
//   file:///path?rank=0&world_size=2         a file that all ranks see
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/store/store.h"
#include "tutti/transport/address.h"
#include "tutti/transport/handshake.h"

namespace tutti {
class StoreServer;
}

namespace tutti::rendezvous {

struct JoinOptions {
  std::string url;                // empty: TUTTI_INIT, else env://
  std::optional<int> rank;        // none: from the URL or the environment
  std::optional<int> world_size;  // likewise
  Duration timeout = std::chrono::minutes(5);
};

struct Membership {
  Membership();
  Membership(Membership&&) noexcept;
  Membership& operator=(Membership&&) noexcept;
  ~Membership();

  int rank = 0;
  int world_size = 1;
  int local_rank = -1;        // -1: unknown
  int local_world_size = -1;  // -1: unknown
  std::string job;            // id of the job, the same on every rank
  std::uint32_t generation = 0;
  transport::Credentials credentials;        // for connections between ranks
  transport::Credentials store_credentials;  // for the store; an agent's outlives generations
  std::unique_ptr<Store> store;              // keys below the job's generation; null for a world of one
  std::vector<transport::Address> stores;    // where this rank reaches it: with a standby, two places
  transport::Address
      store_address;       // where the store is served, the same for all ranks; empty for a file and for a world of one
  std::string local_host;  // numeric address of this machine that reached the store; empty where no network was used
  std::string started_by;  // "tutti run", "torchrun", "mpirun", "srun", "by hand", "alone"
  std::unique_ptr<StoreServer> server;  // where this rank serves the store; outlives `store` of every rank
};

// Blocks until every rank of the world has joined, at most `timeout`; about every 5 s a line on the log names the
// missing ranks. All ranks succeed, or each gets an error that names what is wrong: a kUsage for variables and URLs,
// kMismatch for ranks that disagree (two of one number, different world sizes), kRefused for a foreign job or a wrong
// secret, kAddressInUse, kUnreachable, kTimeout with the ranks that never joined.
Result<Membership> join(const JoinOptions& options = {});

}  // namespace tutti::rendezvous
