#pragma once
// What can be wrong with a call on its own, before any peer is asked.
#include "tutti/base/error.h"
#include "tutti/comm/request.h"

namespace tutti {

// For rank `rank` of a group of `size`: root, op and dtype, splits, null buffers, buffers that overlap other than as
// comm/request.h allows. kInvalidArgument, without group and operation.
Status validate(const Request& request, int rank, int size);

// Of a root or peer that is none of the `size` ranks of the group; the hint says which there are. `what`: "root".
Error not_a_rank(const char* what, int given, int size);

// The usual small call, a sum, broadcast or barrier on one whole buffer, of which validate() would find nothing to say.
// A few instructions: a tenth of what such a call takes is saved by asking this first.
inline bool is_right_at_a_glance(const Request& r, int size) {
  if (!r.in_splits.empty() || !r.out_splits.empty() || r.limit.count() < 0) return false;
  if (r.kind == Kind::kBarrier) return true;
  if (r.in != r.out || !r.in || r.count > std::size_t(1) << 20) return false;
  return r.kind == Kind::kAllReduce ? r.op == ReduceOp::kSum
                                    : r.kind == Kind::kBroadcast && r.root >= 0 && r.root < size;
}

}  // namespace tutti
