#pragma once
// Where a run begins: at the start, or at the step of an earlier run. Same program, same command:
//
//   auto saved = resume_point(world, {.folder = "runs/a"}).or_throw();
//   if (saved) load(*saved);
#include <optional>
#include <span>
#include <string>

#include "tutti/checkpoint/folder/node_folders.h"
#include "tutti/checkpoint/io/reader.h"
#include "tutti/comm/group.h"

namespace tutti {

struct ResumeOptions {
  std::string folder;           // where this run saves; it need not be there yet. Empty: nowhere
  std::string resume = "auto";  // from the newest in `folder` that verifies; "never"; or the path of where to begin
  // The launcher has started this job again after a failure: what it has saved itself in `folder` counts, as with
  // "auto", and `resume` only where there is nothing yet.
  bool restarted = false;
  // Of the checkpoint that `resume` names only the weights count: the run begins at step 0.
  bool weights_only = false;
  // The folder is another one on each node; then what of the others' files this rank is going to read.
  const NodeFolders* node_folders = nullptr;
  std::span<const StateBox> wanted = {};
};
// Which checkpoint a run resumes from.
enum class ResumeSource {
  kOwnFolder,  // the newest of the folder where the run saves
  kNamed,      // the checkpoint that ResumeOptions::resume names
  kMemory,     // a copy in memory (memory/memory_copies.h)
};
struct ResumePoint : CheckpointReader {
  ResumeSource source = ResumeSource::kOwnFolder;
};
// The step of the newest checkpoint in options.folder, as rank 0 sees it, or any node; -1: there is none. Collective.
Result<std::int64_t> newest_saved_step(const Group& group, const ResumeOptions& options);
// From the environment: whether this is not the job's first attempt.
bool was_restarted();

// The result is equal on every rank; none: begin at the start. Collective. Rank 0 logs the checkpoint from which the
// run resumes, and which checkpoints were skipped and why. Errors: kCorrupt: there are checkpoints, but none verifies.
// A run that has trained for weeks must not restart at step 0 unnoticed. kInvalidArgument: a checkpoint that was found,
// not named, belongs to another user or is writable by all users (a named one: a warning). kInvalidArgument: `folder`
// holds later checkpoints than the one to begin with, because the next "auto" would resume from those.
Result<std::optional<ResumePoint>> resume_point(const Group& group, const ResumeOptions& options);

}  // namespace tutti
