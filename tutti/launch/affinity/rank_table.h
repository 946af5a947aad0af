#pragma once
// What the agents tell each other about their ranks' shares of the machine, and the table of ranks that is printed when
// a job starts.
#include <string>
#include <vector>

#include "tutti/launch/membership/rendezvous.h"

namespace tutti::launch {

// What the agent of a node tells the others (NodesOptions::about), as JSON; some KiB at most.
struct NodeInfo {
  std::vector<std::string> shares;  // by local rank, Share::text(); empty: not told
  std::string run;                  // an identifier of this start of the job; node 0's names the run

  bool operator==(const NodeInfo&) const = default;
};
std::string encode(const NodeInfo& info);
// From a node with this many ranks. Parts that are not valid are left empty.
NodeInfo parse_node_info(const std::string& text, int ranks);

struct NodeRows {
  std::string host;
  int first_rank = 0;
  int ranks = 1;
  std::vector<std::string> shares;  // as in NodeInfo
};
// On node 0 those of all nodes, elsewhere those of this node, so that a console that shows several does not repeat
// them.
std::vector<NodeRows> rows_of(const Round& round);

// The lines of the table: rank, host, local rank, and the rank's share of the machine. Adjacent ranks of a node with
// the same share are one line. A table of more than `most` lines has one line for each node.
std::vector<std::string> rank_table(const std::vector<NodeRows>& nodes, std::size_t most = 32);

}  // namespace tutti::launch
