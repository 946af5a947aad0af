#pragma once
// The last step of a join: each rank has reached the same store, stores who it is, and learns who the other ranks are.
// This finds two processes of one rank, different world sizes, a world that is complete already, and an address that
// other ranks cannot reach.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/rendezvous/identity.h"
#include "tutti/store/store.h"

namespace tutti::rendezvous {

// A rank's description of itself for the other ranks.
struct RankInfo {
  int rank = 0;
  int world_size = 1;
  std::string world_size_source;  // "WORLD_SIZE in the environment"
  std::string rank_source;
  std::string host;     // host name, for people only
  std::string machine;  // machine_id()
  int pid = 0;
  std::string local_host;    // the numeric address that reached the store; empty where no network was used
  std::string release = {};  // of tutti
  std::string program = {};  // its name, for people, and
  std::string build = {};    // program_build()
  std::string token;         // "PROCESS.CALL", both random: two processes may have one pid in two containers

  bool operator==(const RankInfo&) const = default;
};

// This process.
RankInfo rank_info_of(const Identity& identity, const std::string& local_host);
// "rank 1 (pid 4123 on node7)"
std::string to_string(const RankInfo& arrival);

std::string encode(const RankInfo& arrival);
Result<RankInfo> decode(const std::string& text);
// The reason why the ranks cannot join, as one of them reports it to the others; text that cannot be parsed is a
// kMismatch all the same.
std::string encode_trouble(const Error& error);
Error decode_trouble(const std::string& text);

// Waits until all ranks have joined; by rank. About every 5 s a line on the log names the missing ranks. `store` is
// that of this generation of the job; keys below join/ are used. kMismatch names both sides; kTimeout names the ranks
// that never came. `place`: the address of the store, for messages. `wrong` finds, while this rank waits, that the
// others cannot come; every rank gets its error.
Result<std::vector<RankInfo>> assemble(Store& store, const RankInfo& me, Deadline deadline,
                                       const std::string& place = {},
                                       const std::function<std::optional<Error>()>& wrong = {});

// kMismatch, which names two of them, if ranks run different releases of tutti, or (unless `mixed` is meant) different
// builds of one program. Programs of different names are meant to differ.
Status check_builds(const std::vector<RankInfo>& world, bool mixed);

// kUsage if the ranks are on several machines and one can be reached by itself alone.
Status check_addresses(const std::vector<RankInfo>& world);

}  // namespace tutti::rendezvous
