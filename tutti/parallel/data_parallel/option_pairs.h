#pragma once
// The table of what excludes each other in a DataParallel: its options, and what uses it later.
#include <span>

#include "tutti/base/option_pairs.h"
#include "tutti/parallel/data_parallel/options.h"

namespace tutti {

struct DataParallelUse {
  const DataParallelOptions& options;
  bool sparse_gradients = false;  // by options.sparse, or by their module
  bool sharded_optimizer = false, loss_scaler = false, no_sync = false, take_gradients = false, join_uneven = false;
};

std::span<const NamedOption<DataParallelUse>> data_parallel_options();
std::span<const ExcludedPair> data_parallel_pairs();

}  // namespace tutti
