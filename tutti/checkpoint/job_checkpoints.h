#pragma once
// All that a training program does with checkpoints, as its command line says it:
//
//   JobCheckpoints checkpoints(world, {.folder = "runs/a", .interval = 100, .keep = 3});
//   if (auto saved = checkpoints.resume(boxes())) load(*saved);
//   checkpoints.prepare(boxes());
//   while (step < steps) {
//     train(++step);
//     const auto due = checkpoints.after(step, step == steps);
//     if (due.save) checkpoints.save(boxes(), {.step = step});
//     if (due.copy) checkpoints.copy(boxes(), {.step = step});
//     if (due.stop) return checkpoints.finish(), 75;
//   }
//   checkpoints.finish();
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "tutti/checkpoint/folder/folder_lock.h"
#include "tutti/checkpoint/folder/resume.h"
#include "tutti/checkpoint/io/background_saver.h"
#include "tutti/checkpoint/io/writer.h"
#include "tutti/checkpoint/memory/memory_copies.h"
#include "tutti/comm/group.h"

namespace tutti {

struct JobCheckpointOptions {
  std::string folder;  // --save-dir; empty: nothing is saved
  // --save-dir-per-node: it is another one on each node, which keeps what its ranks write.
  bool folder_per_node = false;
  std::int64_t interval = 0;    // --save-interval, in steps; 0: only at the end, and where the job is told to stop
  int keep = 0;                 // --keep: of the older ones so many stay; 0: all
  std::int64_t keep_every = 0;  // --keep-every: and those whose step is a multiple of this
  std::string resume = "auto";  // --resume: "auto", "never" or a path (resume.h)
  bool weights_only = false;    // of the checkpoint at that path: the run begins at step 0
  // Save from a copy while training goes on; else save() returns when all is on disk, and copies nothing: for a state
  // of which there is no room for another.
  bool in_background = true;
  // --memory-copy-interval: a copy after every N steps in memory that the agents of tutti run keep, from which a job
  // that is started again goes on without a disk; 0: none. With or without a folder.
  std::int64_t memory_copy_interval = 0;
};

// What the options alone show not to go together (kUsage).
Status check(const JobCheckpointOptions& options);

// Every rank makes one and calls its functions alike; all but the constructor and the statistics do nothing where
// nothing is saved or copied, but for resume() from a path. One thread at a time.
class JobCheckpoints {
 public:
  // Has the folder until it goes (folder_lock.h). Throws Exception where another job has it, where it is not one that
  // all ranks share and may write to, and where copies are wanted that no agent keeps.
  JobCheckpoints(const Group& world, JobCheckpointOptions options);

  // Where to begin, and whose checkpoint that is; none: from the start. Once, before the first step. `wanted`: what
  // this rank is going to read; of a copy in memory on another node it gets that alone. Throws Exception.
  std::optional<ResumePoint> resume(std::span<const SavedBox> wanted);
  bool saves() const { return !options_.folder.empty(); }
  bool copies() const { return options_.memory_copy_interval > 0; }
  // What the first save would have to do else. Throws Exception for boxes that cannot be saved.
  void prepare(std::span<const SavedBox> boxes);

  struct Due {
    bool save = false;
    bool copy = false;
    bool stop = false;  // the job was told to (Group::should_stop()): save, finish(), leave with kLeftEarly
  };
  Due after(std::int64_t step, bool last) const;
  // A save that fails is told, and counts; training goes on.
  void save(std::span<const SavedBox> boxes, const CheckpointFacts& facts);
  // Into memory; one that fails is told, and counts.
  void copy(std::span<const SavedBox> boxes, const CheckpointFacts& facts);
  // Waits until the last save has ended. Throws Exception where it failed: then the job has not kept what it did.
  void finish();
  BackgroundSaverStats stats();
  MemoryCopiesStats copy_stats();

 private:
  void take_folder();
  std::optional<CheckpointReader> newest_copy(std::span<const SavedBox> wanted);
  std::optional<ResumePoint> later_on_disk(std::int64_t step, std::span<const SavedBox> wanted) const;

  const Group world_;
  const JobCheckpointOptions options_;
  std::shared_ptr<const NodeFolders> node_folders_;  // with folder_per_node
  std::optional<FolderLock> folder_lock_;            // one rank of those that see the folder; outlives the last save
  std::unique_ptr<BackgroundSaver> saver_;
  std::unique_ptr<MemoryCopies> copies_;
};

// The exit code of a job that has saved because it was told to stop, and wants to be started again.
inline constexpr int kLeftEarly = 75;

}  // namespace tutti
