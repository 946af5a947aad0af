#pragma once
// What agents say to each other, as values and as bytes: the keys and JSON values that they leave in the job's store,
// and the datagrams of their heartbeats. Everything parsed here was written by another process: what is not understood
// is none, never a crash. tests/fuzz/membership_fuzz.cc holds that.
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/launch/membership/rendezvous.h"
#include "tutti/transport/crypto.h"
#include "tutti/transport/handshake.h"
#include "tutti/version.h"

namespace tutti::launch::membership {

// ---- keys in the job's store ----
namespace keys {

inline const std::string kCoordinator = "agents/coordinator";  // who coordinates; changed by compare_set, term by term
inline const std::string kParticipants = "agents/participants";  // of the newest round
inline const std::string kWaiting = "agents/waiting";            // a sentence for the nodes that wait
inline const std::string kStore = "agents/store";                // where the store is: the newest StorePair
inline const std::string kMoved = "agents/moved";    // in a store at a former address: where the job's store is now
inline const std::string kFormer = "agents/former";  // former addresses of the store, with commas
// With an arbiter (coordinator.h): changes as long as the coordinator lives and may decide.
inline std::string alive(int term) { return "agents/alive/" + std::to_string(term); }
// With an arbiter: that agent lives and does not hear the coordinator of the term.
inline std::string misses(int term, const std::string& id) {
  return "agents/misses/" + std::to_string(term) + "/" + id;
}
// The queue of notes to the coordinator, and its answer to one of them.
inline std::string inbox(int term) { return "agents/inbox/" + std::to_string(term); }
inline std::string assignment(const std::string& id, int visit) {
  return "agents/assignment/" + id + "/" + std::to_string(visit);
}
inline std::string participants(int round) { return "agents/participants/" + std::to_string(round); }
inline std::string end(int round) { return "agents/end/" + std::to_string(round); }  // what ended it: first wins
// How many nodes of the round have ranks that ended well, and how many have saved and leave.
inline std::string done(int round) { return "agents/done/" + std::to_string(round); }
inline std::string leaving(int round) { return "agents/leaving/" + std::to_string(round); }
inline std::string store(int round) { return "agents/store/" + std::to_string(round); }  // StorePair; etcd: its ranks'
inline std::string fault(int round) { return "generation-" + std::to_string(round) + "/fault"; }  // for its ranks

// Of the monitor and the report (monitor/peer_agents.h).
inline std::string status(int round, int node) {
  return "agents/status/" + std::to_string(round) + "/" + std::to_string(node);
}
inline std::string report(int round) { return "agents/report/" + std::to_string(round); }
inline std::string json_report(int round) { return "agents/report_json/" + std::to_string(round); }

}  // namespace keys

// ---- values: encode() gives JSON, the parse functions read it ----

// An agent's id, which names it in keys, as the number that its heartbeats carry.
std::uint64_t number_of(const std::string& id);
std::string id_of(std::uint64_t number);

// What a node says of itself.
struct NodeNote {
  int ranks = 1;
  std::vector<int> listed;  // what its -n said of every node; empty: only of its own
  std::string host;         // for messages
  std::string address;      // the one that reached the store
  std::string about;        // NodesOptions::about
  int pid = 0;              // of its agent, for messages; 0: not said
  // Of tutti; empty: too old to say it. Builds of one release may differ: agents share no memory, and a JSON field that
  // is missing has its default. (Ranks do share memory, and compare their builds: rendezvous/assembly.h.)
  std::string release = TUTTI_VERSION;

  bool operator==(const NodeNote&) const = default;
};
std::string encode(const NodeNote& note);
std::optional<NodeNote> parse_node_note(const std::string& text);
// The notes of all nodes, by node: kMismatch names two whose -n contradict each other.
Status check_rank_counts(const std::vector<NodeNote>& notes);

// A node asks to take part in the next round.
struct JoinRequest {
  std::string id;         // of its agent's process; another process of the same node has another id
  int visit = 0;          // counts the rounds that this agent has asked for
  int wanted = -1;        // the number that --node-rank gives it; -1: any
  int min = 1, max = 1;   // its --nnodes
  bool failover = false;  // whether it counts on a standby of the store (Limits::failover)
  int port = 0;           // free for the program, should this become node 0
  int last_round = -1;    // that it took part in
  NodeNote note;

  bool operator==(const JoinRequest&) const = default;
};
std::string encode(const JoinRequest& request);
std::optional<JoinRequest> parse_join_request(const std::string& text);
// "node 2 (c at 10.0.0.3)", or without a number "c at 10.0.0.3".
std::string describe(const JoinRequest& request);
std::string describe(const JoinRequest& request, int node);
// To tell two agents of one host apart: "node 2 (c at 10.0.0.3, pid 71)", "c at 10.0.0.3, pid 71".
std::string describe_with_pid(const JoinRequest& request);

// The notes in the coordinator's inbox.
std::string join_note(const JoinRequest& request);
std::string leave_note(const std::string& id);
struct InboxNote {
  std::optional<JoinRequest> join;
  std::string leave;  // the id of the node that leaves; empty: none does
};
// None: it is of another version of tutti.
std::optional<InboxNote> parse_note(const std::string& text);

// The nodes of a round, by node; and the faults that ended earlier rounds.
struct Participants {
  int round = 0;
  std::vector<JoinRequest> nodes;
  std::vector<Fault> past;
  std::string standby;  // the id of the node that keeps a copy of the store; empty: none does

  bool operator==(const Participants&) const = default;
};
std::string encode(const Participants& participants);
std::optional<Participants> parse_participants(const std::string& text);

// The answer to a join request: a place in a round, or why there is none.
struct Assignment {
  int round = 0;
  int node = 0;
  std::optional<Error> refused;
};
std::string encode(const Assignment& assignment);
std::optional<Assignment> parse_assignment(const std::string& text);

// Who coordinates.
struct CoordinatorAddress {
  int term = 0;
  std::string id;
  std::string host;     // for messages
  std::string address;  // where it answers heartbeats: "10.0.0.1:29501"
  std::string proof;    // that it holds the job's secret: proof_of(); empty: of an older release

  bool operator==(const CoordinatorAddress&) const = default;
};
std::string encode(const CoordinatorAddress& coordinator);
std::optional<CoordinatorAddress> parse_coordinator(const std::string& text);
// An HMAC over the other fields, with a key derived from secret and job for this purpose only. An agent with another
// secret sees that it differs. To guess the secret it is worth no more than the proof of the store's handshake. It is
// readable by everybody who reaches the store, which with etcd may be strangers.
std::string proof_of(const transport::Credentials& credentials, const CoordinatorAddress& coordinator);

// Where the job's store is, from a round on.
struct StorePair {
  int round = -1;
  std::string servers;  // "10.0.0.1:29400,10.0.0.2:29400": the primary and the standby; or the first alone
  std::string standby;  // the id of the agent that keeps the copy; empty: there is none
  std::string votes;    // where it takes votes: "10.0.0.2:29400", UDP

  bool operator==(const StorePair&) const = default;
};
std::string encode(const StorePair& pair);
std::optional<StorePair> parse_store_pair(const std::string& text);

// `mine` is not part of it. What is not understood is a fault all the same.
std::string encode(const RoundEnd& end);
RoundEnd parse_round_end(const std::string& value);
// A fault on its own; none: all ranks ended well.
std::string encode_fault(const std::optional<Fault>& fault);
std::optional<Fault> parse_fault(const std::string& value);

// ---- heartbeats: datagrams between an agent and the coordinator (heartbeat.h) ----
//
//   64 bytes, little-endian:  "tuttiP2\0" | u8 kind | u8 out | u16 0 | i32 round | u64 id of the agent |
//                             u64 own clock | u64 the other's | i32 vote | u32 0 |
//                             16 bytes of HMAC-SHA256 over what precedes
//
// The key is derived from the job's secret, so no stranger can keep a dead node alive. A datagram that is sent again
// returns an old clock value and proves nothing new. It also carries the votes on who serves the store (failover.h).
inline constexpr std::size_t kDatagramBytes = 64;
struct Datagram {
  enum class Kind : std::uint8_t {
    kPing = 1,  // from an agent
    kEcho = 2,  // from the coordinator
    kVotes = 3  // from a standby that takes votes
  } kind = Kind::kPing;
  bool out = false;  // echo: the coordinator does not count on this agent in `round`, which is the ping's
  std::int32_t round = -1;
  std::uint64_t id = 0;
  std::uint64_t own = 0, other = 0;
  std::int32_t vote = -1;  // echo: the agent's vote in that round is asked for; ping: it is given

  bool operator==(const Datagram&) const = default;
};
crypto::Digest heartbeat_key(const transport::Credentials& credentials);
std::array<std::byte, kDatagramBytes> encode(const Datagram& datagram, const crypto::Digest& key);
std::optional<Datagram> parse_datagram(std::span<const std::byte> bytes, const crypto::Digest& key);

}  // namespace tutti::launch::membership
