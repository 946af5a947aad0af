#pragma once
// What the agent of a node lets the others know of it (NodesOptions::about), as JSON; some KiB at most.
#include <string>
#include <vector>

namespace tutti {

struct NodeAbout {
  std::vector<std::string> shares;  // by local rank, Share::text(); empty: nothing is told of them
  std::string run;                  // a word that no other start of a job has; node 0's names this run of the job

  bool operator==(const NodeAbout&) const = default;
};
std::string encode(const NodeAbout& about);
// What another node of so many ranks wrote; what cannot be understood is nothing.
NodeAbout parse_node_about(const std::string& text, int ranks);

}  // namespace tutti
