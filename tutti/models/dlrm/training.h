#pragma once
// Training and testing a model on a world of ranks, with the lines of dlrm_s_pytorch.py.
#include "tutti/checkpoint/job_checkpoints.h"
#include "tutti/comm/group.h"
#include "tutti/models/dlrm/architecture.h"
#include "tutti/models/dlrm/options.h"
#include "tutti/models/dlrm/sources.h"

namespace tutti::dlrm {

struct RunResult {
  std::int64_t steps = 0;        // of the optimizer; inference: batches
  double seconds = 0;            // of all steps but the first two, reading left out
  double samples_per_s = 0;      // of them, all ranks
  double last_loss = 0;          // as printed last
  bool stopped = false;          // the job was told to, and all was saved: leave with kLeftEarly
  double accuracy = 0, auc = 0;  // of the last test; auc with --mlperf-logging only
};

// Every rank calls with the same arguments, and with sources of its own. Prints on standard output. A run that was
// interrupted goes on where its checkpoints say. Throws Exception.
RunResult run(const Group& world, const Options& options, const Architecture& architecture, Sources& sources,
              const JobCheckpointOptions& checkpoints = {});

}  // namespace tutti::dlrm
