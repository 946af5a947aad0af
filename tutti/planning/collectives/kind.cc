#include "tutti/planning/collectives/kind.h"

namespace tutti {

const char* name(Kind kind) {
  switch (kind) {
    case Kind::kBarrier:
      return "barrier";
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kReduce:
      return "reduce";
    case Kind::kAllReduce:
      return "all_reduce";
    case Kind::kGather:
      return "gather";
    case Kind::kAllGather:
      return "all_gather";
    case Kind::kScatter:
      return "scatter";
    case Kind::kReduceScatter:
      return "reduce_scatter";
    case Kind::kAllToAll:
      return "all_to_all";
    case Kind::kGatherV:
      return "gather_v";
    case Kind::kAllGatherV:
      return "all_gather_v";
    case Kind::kScatterV:
      return "scatter_v";
    case Kind::kReduceScatterV:
      return "reduce_scatter_v";
    case Kind::kSend:
      return "send";
    case Kind::kRecv:
      return "recv";
  }
  return "?";
}

}  // namespace tutti
