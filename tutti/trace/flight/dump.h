#pragma once
// The contents of one rank's flight recorder at one moment, as a value and as a file.
//
// The file, flight-rank3.json, is lines of JSON: first the rank (FlightDump without its operations; "operations" is how
// many follow), then one line for each operation, by the time at which it began. Times are nanoseconds of
// CLOCK_MONOTONIC; the first line has that clock and the time of day as they were when the file was written. See
// docs/how-to/debug-a-hang.md.
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::trace {

struct FlightOperation {
  enum class State : std::uint8_t { kScheduled, kStarted, kCompleted, kFailed };
  int group = 0;               // its place in FlightDump::groups
  bool exchange = false;       // send and recv, which are numbered apart from the collectives
  std::uint64_t sequence = 0;  // from 1, in its group
  State state = State::kStarted;
  std::string call;  // "all_reduce (f32[4], sum)": all that must be the same on every rank
  std::string kind, dtype, op;
  int root = -1;  // or the peer of a send or recv; -1: it has none
  int tag = 0;
  std::uint64_t count = 0, bytes = 0;                  // of this rank's part; 0 where the parts are uneven
  std::string way;                                     // "direct", "link", "ring", ...; empty: not known yet
  std::string site;                                    // "train.cc:212"; empty: unknown
  std::int64_t scheduled = 0, started = 0, ended = 0;  // 0: not, or not known
};
const char* name(FlightOperation::State state);

struct FlightGroup {
  std::uint64_t id = 0;  // the same on every rank, and no other group's
  std::string name;
  int rank = 0;                   // of this rank, in the group
  std::vector<int> global_ranks;  // by rank in the group
  bool left = false;              // this rank has given up the group
};

struct FlightDump {
  std::string job;
  int rank = 0;
  int world_size = 1;
  std::string host;
  int pid = 0;
  std::vector<std::string> reasons;  // why it was written, first to last
  bool failed = false;               // one of them is an error, not a request for a record
  std::string written;               // the time of day, for people
  double wall = 0;                   // seconds since 1970
  std::int64_t monotonic = 0;        // nanoseconds, at the same moment
  std::vector<FlightGroup> groups;
  std::vector<FlightOperation> operations;
};

std::string to_text(const FlightDump& dump);
// kCorrupt: it is not such a file, or the end of it is missing; the sentence says which.
Result<FlightDump> parse_flight_dump(const std::string& text);

// "flight-rank3.json"
std::string flight_file_name(int rank);
// The default folder of a job: under $TMPDIR or /tmp, for this user and job.
std::string default_flight_folder(const std::string& job);
// Makes the folder for the flight records and stacks of a job, and its parents, unless they exist. A folder named as
// default_flight_folder(), which any user can guess, needs an existing parent, and is kRefused unless it is this user's
// alone.
Status make_flight_folder(const std::string& folder);
// Whether its files may be trusted, and renamed: it is not another user's folder of that name. False if there is none.
bool is_own_flight_folder(const std::string& folder);
// Makes the folder if need be, and writes the file whole or not at all (a temporary file, renamed). Its path.
Result<std::string> write_flight_dump(const FlightDump& dump, const std::string& folder);

// The ranks whose records in the folder were written since then, ascending.
std::vector<int> ranks_with_flight_files(const std::string& folder, std::chrono::system_clock::time_point since);

// The records in some folders: at most one dump a rank, the newest, all of the job that wrote last; and a sentence for
// each file that could not be used.
struct FlightFiles {
  std::vector<FlightDump> dumps;  // by rank
  std::vector<std::string> problems;
  bool damaged = false;  // one of them is a file that cannot be read, not one that is skipped
};
// kNotFound: there is no such folder, or nothing in it.
Result<FlightFiles> read_flight_folders(const std::vector<std::string>& folders);

}  // namespace tutti::trace
