#pragma once
// The folder in which a job keeps its checkpoints: step-0000100, step-0000200, ..., and `latest`, a file with the name
// of the newest. Names that begin with a point are on their way in or out, and count for nothing.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

struct CheckpointFolder {
  std::int64_t step = 0;
  std::string path;
};

std::string checkpoint_folder_name(std::int64_t step);                // "step-0000100"
std::optional<std::int64_t> step_of_folder(const std::string& name);  // none: it is no such name
// By rising step. Whatever else lies there is left out. kSystem: the folder cannot be read.
Result<std::vector<CheckpointFolder>> list_checkpoints(const std::string& folder);

// Which of the older checkpoints stay when one was saved.
struct KeepRule {
  int last = 0;            // so many of the newest; 0: all
  std::int64_t every = 0;  // and those whose step is a multiple of this; 0: none more
};

// Those of `found`, which are in the order of list_checkpoints(), that `keep` does not name.
std::vector<CheckpointFolder> beyond(const std::vector<CheckpointFolder>& found, const KeepRule& keep);
// Its proper name goes first: no moment leaves half of one under it.
Status remove_checkpoint(const std::string& path);

// A folder beside the checkpoints in which the next one is made; goes with the object unless it was committed.
class CheckpointDraft {
 public:
  // Makes `folder` where there is none, and takes away what was left by those who were killed.
  static Result<CheckpointDraft> create(const std::string& folder, std::int64_t step);
  static std::string path_of(const std::string& folder, std::int64_t step);
  CheckpointDraft(CheckpointDraft&& other) noexcept;
  CheckpointDraft& operator=(CheckpointDraft&&) = delete;
  ~CheckpointDraft();

  // By one rename, after all names in it are on disk. One of the same step is replaced. Then `latest` is written, and
  // what `keep` does not name of this and earlier steps is removed; what cannot be is a warning.
  Status commit(const KeepRule& keep);

 private:
  CheckpointDraft(std::string folder, std::int64_t step);
  void prune(const KeepRule& keep) const;

  std::string folder_, path_;  // path_: empty once it is committed, or moved from
  std::int64_t step_;
};

}  // namespace tutti
