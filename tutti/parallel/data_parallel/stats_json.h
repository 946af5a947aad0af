#pragma once
// The statistics of DataParallel as JSON, in the place of torch's DDP logging data.
#include <string>

#include "tutti/parallel/data_parallel/options.h"

namespace tutti {

// One object on one line: the fields of the struct under their names; "buckets" is a list of lists of parameters'
// names.
std::string to_json(const DataParallelStats& stats);

}  // namespace tutti
