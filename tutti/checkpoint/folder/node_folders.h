#pragma once
// Checkpoints in folders that not all nodes see: each node keeps what its ranks write, and the whole manifest. The
// files of all nodes, put into one folder, are an ordinary checkpoint.
#include <span>
#include <string>
#include <vector>

#include "tutti/checkpoint/io/reader.h"
#include "tutti/checkpoint/io/scattered.h"
#include "tutti/comm/group.h"

namespace tutti {

struct NodeFolders {
  RanksByPlace places;             // ranks that see one folder share a place
  std::vector<std::string> hosts;  // by rank, for words
};

// Who sees whose folder of that name, which is made where there is none. Collective; equal on all ranks: that, or what
// is wrong with the first rank that cannot use its folder. Leaves nothing behind.
Result<NodeFolders> meet_node_folders(const Group& group, const std::string& folder);

// An error of the folder of this node, with the name of the host in front.
Status told_with_host(Status status);

// As save_checkpoint(): each node gets the files of its ranks, and the manifest of the whole.
Status save_on_nodes(const Group& group, const NodeFolders& nodes, const std::string& folder,
                     std::span<const StateBox> boxes, const CheckpointFacts& facts, const SaveOptions& options = {});

// The step of the newest checkpoint in any of the folders; -1: there is none. Collective.
Result<std::int64_t> newest_node_step(const Group& group, const NodeFolders& nodes, const std::string& folder);

struct OnNodes {
  CheckpointReader reader;
  std::vector<std::string> passed_over;  // newer ones, and why
};
// The newest checkpoint of which every file is as it was written on one of the nodes; `path` may also be that of one
// checkpoint. Those passed over say which file is missing, and on which host it was written. What lies on other nodes
// of `wanted` is fetched, and the rest of it cannot be read. Collective, as CheckpointReader::open().
Result<OnNodes> open_node_folders(const Group& group, const NodeFolders& nodes, const std::string& path,
                                  std::span<const StateBox> wanted, VerifyLevel level = VerifyLevel::kAll);

}  // namespace tutti
