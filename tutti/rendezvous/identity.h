#pragma once
// Who am I and where do we meet: a pure function of the URL, the call and the environment.
//
// A fact is taken from the URL, then from the call, then from RANK and WORLD_SIZE, then from the scheduler that started
// the process. Sources that contradict one another are an error that names both; what is missing is named all at once.
// A scheduler's numbers are only asked where nothing nearer tells: under tutti run and torchrun it counts nodes, not
// ranks, and a URL or call that gives both numbers means its own world.
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/rendezvous/schedulers.h"
#include "tutti/rendezvous/url.h"
#include "tutti/transport/address.h"

namespace tutti {

// Where the ranks of a world meet.
enum class Meeting {
  kNowhere,  // a world of one
  kServed,   // somebody else serves a store at `address`: the agent of tutti run
  kTcp,      // rank 0 serves at `address` (the host may be a name)
  kLocal,    // rank 0 serves on a Unix socket: at `address`, or, where that is empty, in the user's runtime folder and
             // named after the job; all ranks are on one host
  kPorts,    // rank 0 serves at `address.host` on the first free one of `ports`, all derived from the job
  kFile,     // a file at `path`
};

struct Identity {
  int rank = 0;
  int world_size = 1;
  int local_rank = -1;        // -1: nobody told
  int local_world_size = -1;  // -1: nobody told
  std::string rank_source;    // "RANK in the environment", "rank= in the URL", ...
  std::string world_size_source;

  Meeting meeting = Meeting::kNowhere;
  Address address;
  std::vector<Address> stores;  // kServed: a primary and its follower, in any order; the first is `address`
  Address unix_store;           // kServed: the same store at a Unix socket of its host, or empty
  std::vector<std::uint16_t> ports;
  std::string path;
  std::string meeting_source;  // "MASTER_ADDR and MASTER_PORT", "the URL", ...
  // Whether all ranks are known to be on one host (yes), on several (no), or it is not known.
  enum class OneHost { kYes, kNo, kUnknown } one_host = OneHost::kUnknown;

  std::string job;
  std::uint32_t generation = 0;
  std::string started_by;  // "tutti run", "torchrun", "mpirun", "srun", ..., "by hand", "alone"
  std::string note;        // a line for the log, or empty
};

struct CallFacts {
  std::string url;  // empty: TUTTI_INIT, else env://
  std::optional<int> rank;
  std::optional<int> world_size;
};

Result<Identity> identify(const CallFacts& call, const Environment& environment);

}  // namespace tutti
