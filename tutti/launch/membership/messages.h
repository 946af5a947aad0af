#pragma once
// What agents write into the store for each other, as values and as JSON. Everything here was written by another
// process: what cannot be understood is none, never a crash.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/launch/roll_call.h"

namespace tutti {

// An agent's id, which names it in texts, as the number that its heartbeats carry.
std::uint64_t number_of(const std::string& id);
std::string id_of(std::uint64_t number);

// A node as it comes to a gathering.
struct JoinRequest {
  std::string id;        // of its agent's process; another process of the same node is another comer
  int visit = 0;         // which of this agent's gatherings
  int wanted = -1;       // the number that --node-rank gives it; -1: any
  int min = 1, max = 1;  // what its --nnodes said
  int port = 0;          // free for the program, should this become node 0
  int last_round = -1;   // that it took part in
  RollNote note;

  bool operator==(const JoinRequest&) const = default;
};
std::string encode(const JoinRequest& comer);
std::optional<JoinRequest> parse_comer(const std::string& text);
// "node 2 (c at 10.0.0.3)", or without a number "c at 10.0.0.3".
std::string words(const JoinRequest& comer);
std::string words(const JoinRequest& comer, int node);
// Where two must be told apart that may be of one host: "node 2 (c at 10.0.0.3, pid 71)", "c at 10.0.0.3, pid 71".
std::string words_with_pid(const JoinRequest& comer);

// Who takes part in a round, by node; and the faults that ended earlier ones.
struct Participants {
  int round = 0;
  std::vector<JoinRequest> nodes;
  std::vector<Fault> past;
  std::string successor;  // the id of the node that keeps a copy of the store; empty: none does

  bool operator==(const Participants&) const = default;
};
std::string encode(const Participants& roster);
std::optional<Participants> parse_roster(const std::string& text);

// What a comer is told: its place in a round, or why there is none.
struct Assignment {
  int round = 0;
  int node = 0;
  std::optional<Error> refused;
};
std::string encode(const Assignment& seat);
std::optional<Assignment> parse_seat(const std::string& text);

// Who coordinates: the agent that keeps the book of who has come.
struct CoordinatorAddress {
  int term = 0;
  std::string id;
  std::string host;     // for words
  std::string address;  // where it answers heartbeats: "10.0.0.1:29501"
  std::string proof;    // that it holds the job's secret (proof_of() in coordination.h); empty: of an older release

  bool operator==(const CoordinatorAddress&) const = default;
};
std::string encode(const CoordinatorAddress& coordinator);
std::optional<CoordinatorAddress> parse_coordinator(const std::string& text);

// Where the job's store is, from a round on.
struct StorePair {
  int round = -1;
  std::string servers;    // "10.0.0.1:29400,10.0.0.2:29400": the one that serves and its copy; or the first alone
  std::string successor;  // the id of the agent that has the copy; empty: there is none
  std::string box;        // where it takes voices: "10.0.0.2:29400", UDP

  bool operator==(const StorePair&) const = default;
};
std::string encode(const StorePair& pair);
std::optional<StorePair> parse_store_pair(const std::string& text);

}  // namespace tutti
