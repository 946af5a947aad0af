#pragma once
// Which ranks were missing in which call: the flight records of all ranks, compared.
#include <optional>
#include <string>
#include <vector>

#include "tutti/trace/flight/dump.h"

namespace tutti::trace {

// Ranks are global ranks, in ascending order.
struct FlightReport {
  // Ranks of one group whose records agree.
  struct Row {
    std::vector<int> ranks;
    std::uint64_t completed = 0;  // number of the last collective that they completed; 0: none
    std::string now;              // "waits in all_reduce #944 (f32[65536], sum)", "not in #944 yet", "no record"
    double seconds = -1;          // since when, at the longest; -1: not known
    std::string site;             // where that was called
  };
  // A call that ranks of a group made under one number, though not the same.
  struct Variant {
    std::string call;
    std::vector<int> ranks;
    std::string site;  // of the lowest of them
  };
  struct GroupPart {
    std::string name;
    std::vector<int> members;
    std::uint64_t completed_by_all = 0;  // of those that left a record
    std::string completed_call;          // what that was; empty: none, or it is no longer remembered
    std::uint64_t mismatch = 0;          // number of the first call that was not the same on all; 0: none
    std::vector<Variant> variants;       // of it
    std::uint64_t awaited = 0;           // number of the call that some began and not all completed; 0: none
    std::string awaited_call;
    std::vector<int> waiting, done, missing, without_record;  // of it
    double waited = 0;                                        // seconds, at the longest
    std::vector<Row> rows;
  };

  std::string job;
  int world_size = 1;
  std::vector<std::string> verdict;  // sentences, the most telling first; never empty
  bool stuck = false;                // a rank waits, or waited when the job failed
  std::vector<int> without_record;
  std::vector<std::string> reasons;  // why the records were written: "rank 0: ..."; each reason once
  std::vector<GroupPart> groups;     // those in trouble first
};

// `dumps` as read_flight_folders() gives them: of one job, by rank, not empty.
FlightReport make_flight_report(const std::vector<FlightDump>& dumps);

// "all_reduce (f32[4], sum)", 7 -> "all_reduce #7 (f32[4], sum)"
std::string numbered(const std::string& call, std::uint64_t sequence);
std::string to_text(const FlightReport& report);
std::string to_json(const FlightReport& report);

}  // namespace tutti::trace
