#pragma once
// How LibTorch should compute in this process.
//
//   auto world = tutti::init();
//   const tutti::Compute compute(world);    // before the first operator
//   tutti::DataParallel ddp(model, world);
#include <memory>
#include <optional>

#include "tutti/base/machine.h"

namespace tutti {

class Group;
class HeapTensors;

struct ComputeOptions {
  // Where ranks share a host, large CPU tensors (64 KiB) are made in memory that the peers can read, so collectives do
  // not copy them. fork() does not inherit this memory: a child that touches such a tensor of its parent dies of
  // SIGSEGV. A program that forks (a loader with worker processes) sets this to false, or forks before.
  bool heap_tensors = true;
};

// What a training program does once, explicitly, to its process: prepare_compute(), and, while the object exists,
// HeapTensors. Every rank makes one. DataParallel works without, slower, and then logs one line of warning.
class Compute {
 public:
  explicit Compute(const Group& group, ComputeOptions options = {});
  ~Compute();
  Compute(const Compute&) = delete;
  Compute& operator=(const Compute&) = delete;
  int cores() const { return cores_; }  // this rank's share

 private:
  int cores_;
  std::unique_ptr<HeapTensors> heap_;
};

// This rank's share of the cores `mine`, those that it may use: a core that k ranks of the host may use counts as 1/k.
// At least 1. So each rank that mpirun or srun bound to four cores has four, and n ranks that may all use all of
// sixteen cores have 16 / n each. Collective.
int share_of_cores(const Group& group, const CoreMask& mine);

// Collective; call it before the first operator. Denormal numbers count as zero in this thread and in threads that it
// starts (they slow a step fivefold). Without OMP_NUM_THREADS and fix_compute_threads() LibTorch computes with this
// rank's share of the host's cores. The first rank of a host prints a warning if LibTorch runs on the reference BLAS.
// Threads and warning only the first time in a process. Returns cores_of_rank().
int prepare_compute(const Group& group);
bool is_compute_prepared();  // prepare_compute() was called in this process

// Every rank calls; changes nothing. This rank's share of the cores: those allowed, within the cgroup's quota, divided
// among the ranks of this host that may use them.
int cores_of_rank(const Group& group);

// From here on LibTorch and its BLAS compute with `threads` threads in this process, whatever OMP_NUM_THREADS,
// OPENBLAS_NUM_THREADS and prepare_compute() say. The last bits of a product depend on this number. Call it before
// other threads compute: LibTorch may keep another number in a thread that has computed before.
void fix_compute_threads(int threads);
// The number that was fixed last, if any.
std::optional<int> fixed_compute_threads();

// Of the LibTorch that this was compiled against: "1.13.0".
const char* torch_version();

}  // namespace tutti
