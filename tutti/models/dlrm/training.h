#pragma once
// Training and testing a model on a world of ranks, with the lines of dlrm_s_pytorch.py.
#include "tutti/comm/group.h"
#include "tutti/models/dlrm/architecture.h"
#include "tutti/models/dlrm/options.h"
#include "tutti/models/dlrm/sources.h"
#include "tutti/training/trainer.h"

namespace tutti::dlrm {

struct RunResult {
  TrainingResult training;  // nothing in inference
  std::int64_t inferred_batches = 0;
  StepTiming timing;             // of steps, or in inference of batches; reading is not in step_seconds
  double last_loss = 0;          // as printed last
  double accuracy = 0, auc = 0;  // of the last test; auc with --mlperf-logging only
};

// Every rank calls with the same arguments, and with sources of its own. Prints on standard output. A run that was
// interrupted resumes from its checkpoints. Throws Exception.
RunResult run(const Group& world, const Options& options, const Architecture& architecture, Sources& sources,
              const CheckpointerOptions& checkpoints = {});

}  // namespace tutti::dlrm
