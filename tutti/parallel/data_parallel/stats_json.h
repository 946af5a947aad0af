#pragma once
// What DataParallel tells of itself, as JSON: what torch's DDP logging data is for.
#include <string>

#include "tutti/parallel/data_parallel/options.h"

namespace tutti {

// One object on one line: the fields of the struct under their names; "buckets" is a list of lists of parameters'
// names.
std::string to_json(const DataParallelStats& stats);

}  // namespace tutti
