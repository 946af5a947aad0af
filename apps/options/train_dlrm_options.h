#pragma once
// The options of train_dlrm: those of dlrm_s_pytorch.py, and Tutti's.
#include <string>

#include "apps/options/option.h"
#include "tutti/checkpoint/checkpointer.h"
#include "tutti/models/dlrm/options.h"

namespace tutti::cli {

struct TrainDlrmCommand {
  dlrm::Options options;
  CheckpointerOptions checkpoints;
  bool chooses_parallel = false;  // --parallel auto
  std::string cluster;            // that it chooses for; empty: what it measures
};

// The table sets `command`. As in dlrm_s_pytorch.py, it reads DLRM_ALLTOALL_IMPL of the environment too.
OptionTable train_dlrm_options(TrainDlrmCommand& command);

}  // namespace tutti::cli
