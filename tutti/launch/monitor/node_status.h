#pragma once
// How the ranks of one node are doing, as a value, as JSON (docs/reference/json.md), and as a table for people.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::launch {

struct RankStatus {
  int rank = 0;
  int pid = 0;
  std::string state;           // "runs", "stopped", "ended", "failed"
  std::int64_t step = -1;      // -1: none was told
  double steps_a_second = -1;  // lately; -1: not known
  double waits = -1;           // the share of its time that it is in calls, lately; -1: not known
  std::string doing;           // "all_reduce #42 (f32[1024], sum) on group world", "computes", "in tutti::init()"
  double seconds = -1;         // in that; -1: not known
  std::string alarm;           // a message for people (comm/alarm.h); empty: none
  double since_progress = -1;  // seconds since its last progress; -1: never
  std::uint64_t resident = 0;  // bytes of memory

  bool operator==(const RankStatus&) const = default;
};

struct NodeStatus {
  std::string job;
  int node = 0, nodes = 1;
  int world_size = 1;
  std::string host;
  int attempt = 0;      // the number of the round
  int restarts = 0;     // so far
  double seconds = 0;   // since this node's agent began
  double age = 0;       // seconds since the node published this; 0 for the one asked
  std::string trouble;  // why nothing is known about the ranks; empty: all is well
  std::vector<RankStatus> ranks;

  bool operator==(const NodeStatus&) const = default;
};

std::string encode(const NodeStatus& status);
// kCorrupt: not the JSON of a status.
Result<NodeStatus> parse_node_status(const std::string& text);

// The answer of an agent to `tutti status`: all nodes of the job, the asked one first.
std::string encode_answer(const std::vector<std::string>& nodes);
Result<std::vector<NodeStatus>> parse_answer(const std::string& text);

// The one rank that computes nearly always while all others of the job wait nearly always; none: there is no such rank.
std::optional<int> slow_rank(const std::vector<NodeStatus>& nodes);

// A headline and a table, a line for each rank, at most `lines` in all (0: no limit), none wider than `width` (0: no
// limit); ends with '\n'.
std::string status_table(std::vector<NodeStatus> nodes, int lines, int width);

}  // namespace tutti::launch
