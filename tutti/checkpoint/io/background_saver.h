#pragma once
// Saves during training: copies the state in memory, and a thread writes the copy. A failed save does not stop
// training: its files are removed, stats() counts it, and the older checkpoints stay.
//
//   BackgroundSaver saver(world, "runs/a", {.keep = 3});
//   saver.prepare(boxes());                                    // before training: memory and plan
//   while (train(++step))
//     if (step % 100 == 0) saver.save(boxes(), {.step = step});
//   saver.finish().or_throw();
//
// Threads: one at a time calls it. Every rank makes one and calls its functions alike. The thread works on a group of
// its own, so it never gets in the way of training's calls.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/mutex.h"
#include "tutti/checkpoint/io/job_thread.h"
#include "tutti/checkpoint/io/save_part.h"
#include "tutti/checkpoint/io/snapshot.h"
#include "tutti/checkpoint/io/writer.h"
#include "tutti/comm/group.h"

namespace tutti {

struct BackgroundSaverStats {
  std::int64_t saved = 0, failed = 0;
  std::int64_t failed_in_a_row = 0;
  std::int64_t newest = -1;          // step of the last that was saved
  std::string last_failure;          // "that of step 40: ..."; empty: none
  double waited_seconds = 0;         // of save(), until the save before had ended
  double planned_seconds = 0;        // for who writes what
  double snapshot_seconds = 0;       // for the copies
  std::uint64_t snapshot_bytes = 0;  // that this rank copied
};

// {"saved":3,"failed":0,...}
std::string to_json(const BackgroundSaverStats& stats);

class BackgroundSaver {
 public:
  // Collective. Throws Exception. `nodes`: the folder is another one on each node; null: all ranks see the same. `job`:
  // what the job has on the folder, where this rank has that; saves fail once it was removed. Outlives this.
  BackgroundSaver(const Group& group, std::string folder, SaveOptions options = {},
                  std::shared_ptr<const NodeFolders> nodes = nullptr, const FolderLock* job = nullptr);
  // Waits for the save that is under way: a collective's deadline for every gigabyte at most.
  ~BackgroundSaver();
  BackgroundSaver(const BackgroundSaver&) = delete;

  // Collective. Plans which rank writes what, and allocates the memory for the copy, so that the first save() does not
  // have to. The memory is this rank's part of what is written: replicated tensors are divided over the ranks.
  Status prepare(std::span<const StateBox> boxes);
  // Collective. Waits for the previous save, copies, and returns. The tensors may change then. An error concerns this
  // call alone (invalid boxes, no memory). finish() and stats() report errors of the writing.
  Status save(std::span<const StateBox> boxes, const CheckpointFacts& facts);
  // The same without a copy: returns when all is on disk, or with the error. For a state of which there is no room for
  // another.
  Status save_in_place(std::span<const StateBox> boxes, const CheckpointFacts& facts);
  // Waits until nothing is under way. How the last save ended, the same on every rank.
  Status finish();
  // Of what has ended.
  BackgroundSaverStats stats();

 private:
  struct Job {
    std::vector<StateBox> boxes;
    SavePart part;
    CheckpointFacts facts;
  };
  Status save_now(std::span<const StateBox> boxes, const CheckpointFacts& facts);
  void write(const Job& job);  // on the thread
  void note(std::int64_t step, const Status& ended);
  // "1 of 12 checkpoints was not saved, the last that of step 40: ...": in `tutti status`, and at the end.
  std::string alarm() const TUTTI_REQUIRES(mutex_);

  const Group group_, writing_;  // writing_: the thread's
  const std::string folder_;
  const SaveOptions options_;
  const std::shared_ptr<const NodeFolders> nodes_;
  const FolderLock* const job_;
  PlannedPart planned_;
  PrefaultedMemory memory_;

  Mutex mutex_;
  Status last_ TUTTI_GUARDED_BY(mutex_);
  BackgroundSaverStats stats_ TUTTI_GUARDED_BY(mutex_);
  JobThread<Job> thread_;  // last: it uses all of the above
};

}  // namespace tutti
