#pragma once
// How LibTorch should compute in this process.

namespace tutti {

class Group;

// Denormal numbers count as zero in this thread and those that it starts (they slow a step fivefold); without
// OMP_NUM_THREADS each rank of this host takes its share of the cores; and one line of warning, on the first rank of a
// host, if LibTorch runs on the reference BLAS. DataParallel calls it; cores and warning once a process. Better before
// the first operator.
void prepare_compute(const Group& group);

// Of the LibTorch that this was compiled against: "1.13.0".
const char* torch_version();

}  // namespace tutti
