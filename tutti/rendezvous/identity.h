#pragma once
// Who this process is and where its world meets: a pure function of the URL, the call and the environment.
//
// Each value is taken from the URL, else from the call, else from RANK and WORLD_SIZE, else from the scheduler that
// started the process. If two sources contradict each other, the error names both. One error lists all that is missing.
// A scheduler's numbers count only if no nearer source gives them: under tutti run and torchrun the scheduler counts
// nodes, not ranks, and a URL or call that gives both numbers means its own world.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/rendezvous/schedulers.h"
#include "tutti/rendezvous/url.h"
#include "tutti/transport/address.h"

namespace tutti::rendezvous {

// How the ranks of a world reach their common store.
enum class RendezvousMethod {
  kNone,   // a world of one
  kAgent,  // the agent of tutti run serves a store at `address`
  kTcp,    // rank 0 serves at `address` (the host may be a name)
  kUnix,   // rank 0 serves on a Unix socket: at `address`, or, where that is empty, in the user's runtime folder and
           // named after the job; all ranks are on one host
  kPorts,  // rank 0 serves at `address.host` on the first free one of `ports`, all derived from the job
  kFile,   // a file at `path`
};

struct Identity {
  int rank = 0;
  int world_size = 1;
  int local_rank = -1;        // -1: unknown
  int local_world_size = -1;  // -1: unknown
  std::string rank_source;    // "RANK in the environment", "rank= in the URL", ...
  std::string world_size_source;

  RendezvousMethod method = RendezvousMethod::kNone;
  transport::Address address;
  std::vector<transport::Address> stores;  // kAgent: a primary and its standby, in any order; the first is `address`
  transport::Address unix_store;           // kAgent: the same store at a Unix socket of its host, or empty
  std::vector<std::uint16_t> ports;
  std::string path;
  std::string address_source;  // "MASTER_ADDR and MASTER_PORT", "the URL", ...
  // Whether all ranks are known to be on one host (yes), on several (no), or it is not known.
  enum class OneHost { kYes, kNo, kUnknown } one_host = OneHost::kUnknown;

  std::string job;
  std::uint32_t generation = 0;
  std::string started_by;  // "tutti run", "torchrun", "mpirun", "srun", ..., "by hand", "alone"
  std::string note;        // a line for the log, or empty
};

struct CallArguments {
  std::string url;  // empty: TUTTI_INIT, else env://
  std::optional<int> rank;
  std::optional<int> world_size;
};

Result<Identity> identify(const CallArguments& call, const Environment& environment);

// Names that follow from the id of a job, the same on every rank, so that they need not be sent:
// The id as part of a file name: odd characters replaced, at most 40 bytes, different for different jobs.
std::string file_name_of(const std::string& job);
// Ports for a store without a given port, in the order to try: below the range that the system hands out by itself.
std::vector<std::uint16_t> derived_ports(const std::string& job);

}  // namespace tutti::rendezvous
