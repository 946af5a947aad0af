#pragma once
// For parallel/recompute.h, which runs a part of the program again, under the same Autocast.
#include "tutti/base/dtype.h"

namespace tutti {

// What operators of this thread compute in: the type of the innermost Autocast (mixed_precision.h) that lives,
// kF32 where there is none.
DType autocast_now();

}  // namespace tutti
