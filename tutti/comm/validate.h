#pragma once
// What can be wrong with a call on its own, before any peer is asked.
#include "tutti/base/error.h"
#include "tutti/comm/request.h"

namespace tutti {

// For rank `rank` of a group of `size`: root, op and dtype, splits, null buffers, buffers that overlap other than as
// comm/request.h allows. kInvalidArgument, without group and operation.
Status validate(const Request& request, int rank, int size);

}  // namespace tutti
