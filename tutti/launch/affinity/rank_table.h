#pragma once
// The table of ranks that is printed when a job starts: rank, host, local rank, and what the rank has of the machine.
#include <string>
#include <vector>

#include "tutti/launch/membership/rendezvous.h"

namespace tutti {

struct NodeRows {
  std::string host;
  int first_rank = 0;
  int ranks = 1;
  std::vector<std::string> shares;  // by local rank, Share::text(); empty: nothing is told of them
};
// Of all nodes on node 0, elsewhere of this one, so that a console that shows several does not repeat itself.
std::vector<NodeRows> rows_of(const Round& round);

// Lines for people. PeerStatus of one node that have the same share are one line, and above `most` lines each node is
// one.
std::vector<std::string> rank_table(const std::vector<NodeRows>& nodes, std::size_t most = 32);

}  // namespace tutti
