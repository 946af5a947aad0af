// Names of the operations and how a call reads in an error.
#include "tutti/comm/request.h"

namespace tutti {

const char* name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAvg:
      return "avg";
    case ReduceOp::kProduct:
      return "product";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kBand:
      return "band";
    case ReduceOp::kBor:
      return "bor";
    case ReduceOp::kBxor:
      return "bxor";
    case ReduceOp::kPremulSum:
      return "premul_sum";
  }
  return "?";
}

namespace {

// "8"; with splits "3+0+5", or their number and sum where there are many.
std::string count_text(const Request& request) {
  const auto splits = request.in_splits.empty() ? request.out_splits : request.in_splits;
  if (splits.empty()) return std::to_string(request.count);
  std::string text;
  std::size_t sum = 0;
  for (const std::size_t part : splits) {
    text += (text.empty() ? "" : "+") + std::to_string(part);
    sum += part;
  }
  return splits.size() <= 8 ? text : std::to_string(sum) + " in " + std::to_string(splits.size()) + " parts";
}

}  // namespace

std::string to_string(const Request& request) {
  std::string text = name(request.kind);
  if (request.kind == Kind::kBarrier) return text;
  text += std::string(" (") + name(request.dtype) + "[" + count_text(request) + "]";
  switch (request.kind) {
    case Kind::kReduce:
      text += std::string(", ") + name(request.op) + ", root " + std::to_string(request.root);
      break;
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
    case Kind::kReduceScatterV:
      text += std::string(", ") + name(request.op);
      break;
    case Kind::kBroadcast:
    case Kind::kGather:
    case Kind::kScatter:
    case Kind::kGatherV:
    case Kind::kScatterV:
      text += ", root " + std::to_string(request.root);
      break;
    case Kind::kSend:
      text += ", to " + std::to_string(request.root) + ", tag " + std::to_string(request.tag);
      break;
    case Kind::kRecv:
      text += ", from " + (request.root == kAnySource ? "any" : std::to_string(request.root)) + ", tag " +
              std::to_string(request.tag);
      break;
    case Kind::kBarrier:
    case Kind::kAllGather:
    case Kind::kAllGatherV:
    case Kind::kAllToAll:
      break;
  }
  if (request.device != kHost) text += ", cuda:" + std::to_string(request.device);
  return text + ")";
}

}  // namespace tutti
