#pragma once
// Starts ranks from inside a program: for a test, a notebook-like tool, a quick try. Use `tutti run` for a job that
// survives failures or runs on several hosts.
#include <functional>

#include "tutti/base/clock.h"

namespace tutti {

struct SpawnOptions {
  Duration grace = std::chrono::seconds(30);  // from SIGTERM to SIGKILL for the ranks that are stopped after an error
};

// Runs rank_main(rank) in `ranks` new processes on this host, and returns when all have returned. Each process finds in
// its environment what tutti::init() needs to join the others. The first error stops the other ranks (SIGTERM, then
// SIGKILL after the grace period) and is thrown here with its text: an exception that left rank_main ("rank 1: ..."),
// an exit code, a signal. An error that only says that another rank was lost counts only if there is no other.
//
// Each rank is a copy of this process as it is now (fork), so this works only while the process has one thread. Call it
// before the first operation of LibTorch, before your program uses OpenMP or threads, and before init(); otherwise it
// throws kUnsupported. The threads that OpenBLAS starts when a program is loaded do not count: spawn() ends them, and
// the next matrix product of a process starts them again. The ranks end when this process ends, for whatever reason.
// Their exit handlers do not run; stdio is flushed.
void spawn(int ranks, const std::function<void(int rank)>& rank_main, const SpawnOptions& options = {});

}  // namespace tutti
