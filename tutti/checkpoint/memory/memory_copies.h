#pragma once
// Copies of the state in memory that outlives the workers. Each rank's part of a checkpoint is in the memory of its own
// node's agent, and again on the next node if there is one. When the launcher restarts the workers, they resume from
// there, without a disk, even if another node replaces a lost one.
//
//   MemoryCopies copies(world);                     // under tutti run
//   if (auto saved = copies.newest(boxes)) ...      // after a restart: like any checkpoint
//   copies.prepare(boxes);                          // before training: plan and memory
//   while (train(++step))
//     if (step % 10 == 0) copies.take(boxes, {.step = step});
//
// Memory: of each copy two are kept, so that there is always a whole one: twice what a checkpoint holds on one node,
// over all nodes together four times where there are several.
//
// Threads: one at a time calls it. Every rank makes one and calls its functions alike. A thread of its own, on a group
// of its own, takes the digests and carries the copy to the next node.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/mutex.h"
#include "tutti/checkpoint/io/job_thread.h"
#include "tutti/checkpoint/io/save_part.h"
#include "tutti/checkpoint/memory/neighbours.h"
#include "tutti/checkpoint/memory/restore.h"
#include "tutti/checkpoint/memory/shelves.h"
#include "tutti/comm/group.h"

namespace tutti {

struct MemoryCopiesStats {
  std::int64_t taken = 0, failed = 0;  // of those that have ended
  std::int64_t newest = -1;            // step of the last that is whole on all ranks
  double waited_seconds = 0;           // of take(), until the copy before was whole
  double copy_seconds = 0;             // of take(), for copying
  std::uint64_t copied_bytes = 0;      // by this rank, in take()
  std::uint64_t sent_bytes = 0;        // to the next node
};

// {"taken":3,"failed":0,...}
std::string to_json(const MemoryCopiesStats& stats);

class MemoryCopies {
 public:
  // Collective. Throws Exception: kUsage where a rank has no agent that keeps memory for it. `restarted`: copies
  // of an earlier attempt count; else there are none, and what another program left is given back.
  MemoryCopies(const Group& group, bool restarted);
  // Waits for the copy that is under way.
  ~MemoryCopies();
  MemoryCopies(const MemoryCopies&) = delete;

  // The newest that all ranks together still have (memory/restore.h). Collective; before the first take(). `wanted`:
  // what this rank is going to read of it.
  Result<std::optional<CheckpointReader>> newest(std::span<const StateBox> wanted);
  // Collective. Plans which rank copies what, and allocates memory.
  Status prepare(std::span<const StateBox> boxes);
  // Collective. Waits until the previous copy is complete on all ranks, copies, and returns. The tensors may change
  // then. If the transfer fails, the previous copy stays; stats() and a warning report it.
  Status take(std::span<const StateBox> boxes, const CheckpointFacts& facts);
  // Waits until nothing is under way.
  void wait() { thread_.wait(); }
  MemoryCopiesStats stats();
  bool has_neighbour() const;  // there is more than one node

 private:
  // Two slots for the copies of one rank.
  struct Pair {
    int rank = 0;    // whose
    int number = 0;  // among those of this rank; 0: its own
    std::uint64_t bytes = 0;
    int next = 0;  // which of the two is written next
    Mapping memory[2];
  };
  struct Job {
    CheckpointFacts facts;
    Manifest manifest;  // of what was copied; without digests as yet
    Status copied;
  };
  int shelf_of(const Pair& pair) const;
  Status make_room(std::span<const StateBox> boxes);
  Status fit(Pair& pair, std::uint64_t bytes);
  Result<Manifest> copy(std::span<const StateBox> boxes, const CheckpointFacts& facts);
  void clear_old_ones();
  void finish(Job& job);  // on the thread
  Status complete(Job& job);
  Status finish_own(Job& job, std::string& text);
  Status hand_on(const Job& job, const std::string& text);
  void note(std::int64_t step, const Status& ended);

  const Group group_, carrying_;  // carrying_: the thread's
  const Shelves shelves_;
  CopyNeighbours neighbours_;
  std::uint64_t history_ = 0;
  PlannedPart planned_;
  std::vector<Pair> pairs_;                                         // its own, then the replicas
  std::optional<std::pair<std::int64_t, std::uint64_t>> restored_;  // step and history of the resumed copy
  bool cleared_ = false;

  Mutex mutex_;
  MemoryCopiesStats stats_ TUTTI_GUARDED_BY(mutex_);
  JobThread<Job> thread_;  // last: it uses all of the above
};

}  // namespace tutti
