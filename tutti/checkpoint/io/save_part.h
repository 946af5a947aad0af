#pragma once
// A save in two halves, for who lets time pass between them: who writes what, and the writing. Both are collective, and
// throw Exception where the group ends.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/checkpoint/io/writer.h"

namespace tutti {

class FolderLock;    // checkpoint/folder/folder_lock.h
struct NodeFolders;  // checkpoint/folder/node_folders.h

// What this rank writes.
struct SavePart {
  std::vector<std::size_t> boxes;  // numbers of those given, rising
  std::uint64_t most = 0;          // bytes that the rank writes that has most
};

// Looks at what every rank was given and deals it out (save_plan.h). A plan holds as long as no rank gives other boxes.
Result<SavePart> plan_my_part(const Group& group, std::span<const StateBox> boxes, const CheckpointFacts& facts,
                              const SaveOptions& options);
// Of `boxes` only those of the part are looked at. `nodes`: the folder is another one on each node; null: all ranks see
// the same. `job`: what the job has on the folder, on the ranks that make it; the save fails where that was removed.
Status write_my_part(const Group& group, const std::string& folder, std::span<const StateBox> boxes,
                     const SavePart& part, const CheckpointFacts& facts, const SaveOptions& options,
                     const NodeFolders* nodes = nullptr, const FolderLock* job = nullptr);

// Who writes what, found out once: it holds until a rank comes with other boxes. All ranks learn of that in the same
// call.
class PlannedPart {
 public:
  // Collective: one small all_reduce, and a new plan where a rank needs one. Whether it is a new one, the same on every
  // rank. Throws Exception where the group ends.
  Result<bool> update(const Group& group, std::span<const StateBox> boxes, const CheckpointFacts& facts,
                      const SaveOptions& options);
  // Of this rank, after an update() that went well.
  const SavePart& part() const { return *part_; }

 private:
  std::optional<SavePart> part_;
  std::string planned_for_;  // the boxes that part_ is of, as text
};

}  // namespace tutti
