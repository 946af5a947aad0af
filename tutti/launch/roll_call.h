#pragma once
// The words that agents of different nodes leave for each other in the store (nodes.h has the keys), as pure functions
// of what another node wrote.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/version.h"

namespace tutti {

// What a node says of itself in the roll call, as JSON.
struct RollNote {
  int ranks = 1;
  std::vector<int> listed;  // what its -n said of every node; empty: only of its own
  std::string host;         // for words
  std::string address;      // the one that reached the store
  std::string about;        // what its agent wants the others to know
  int pid = 0;              // of its agent, for words; 0: it does not tell
  // Of tutti; empty: it is too old to tell. Builds of one release may differ: agents share no memory, and what they say
  // to each other is JSON, in which a field that is missing has its default. (Ranks do, and compare their builds:
  // rendezvous/assembly.h.)
  std::string release = TUTTI_VERSION;

  bool operator==(const RollNote&) const = default;
};
std::string encode(const RollNote& note);
// None: it is of another version of tutti.
std::optional<RollNote> parse_roll_note(const std::string& text);
// The notes of all nodes, by node: kMismatch names two that contradict each other.
Status check_roll(const std::vector<RollNote>& notes);

// Why a round ends: the first one told wins on every node.
struct Fault {
  std::string text;        // "rank 2 (pid 8123 on host) was killed by SIGKILL"
  int code = 1;            // the exit code of the job
  bool report = false;     // the agent that told it writes a report of the rank's last words
  int rank = -1;           // the one that failed, if one did
  std::int64_t step = -1;  // the last that it had begun, if it told
  double seconds = 0;      // that it had run
  bool final = false;      // no restart is wanted: the user's wish, the time limit

  bool operator==(const Fault&) const = default;
};
// What ended the round, as JSON; none: all ranks ended well.
std::string encode_end(const std::optional<Fault>& fault);
// What cannot be understood is a fault all the same.
std::optional<Fault> parse_end(const std::string& value);

}  // namespace tutti
