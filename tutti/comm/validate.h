#pragma once
// Checks of a call by itself, before any peer is involved.
#include "tutti/base/error.h"
#include "tutti/comm/request.h"

namespace tutti::comm {

// Checks root, op and dtype, splits, null buffers, and buffers that overlap in a way that comm/request.h does not
// allow, for `rank` of a group of `size`. kInvalidArgument, without group and operation.
Status validate(const Request& request, int rank, int size);

// The error of a root or peer outside the `size` ranks of the group. `what`: "root".
Error not_a_rank(const char* what, int given, int size);

// Whether this is the usual small call: a sum, broadcast or barrier on one whole buffer, for which validate() returns
// ok. Asking this first saves a tenth of the time of such a call.
inline bool is_right_at_a_glance(const Request& r, int size) {
  if (!r.in_splits.empty() || !r.out_splits.empty() || r.limit.count() < 0) return false;
  if (r.kind == Kind::kBarrier) return true;
  if (r.in != r.out || !r.in || r.count > std::size_t(1) << 20) return false;
  return r.kind == Kind::kAllReduce ? r.op == ReduceOp::kSum
                                    : r.kind == Kind::kBroadcast && r.root >= 0 && r.root < size;
}

}  // namespace tutti::comm
