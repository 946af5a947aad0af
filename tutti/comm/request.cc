// The names of the operations and the text of a call in errors.
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

// "8"; with splits "3+0+5", or their sum and number if there are many.
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
  if (verb(request.kind).combine == Verb::Combine::kNothing) return text;
  text += std::string(" (") + name(request.dtype) + "[" + count_text(request) + "]";
  if (is_reduction(request.kind)) text += std::string(", ") + name(request.op);
  if (has_root(request.kind)) text += ", root " + std::to_string(request.root);
  if (is_point_to_point(request.kind))
    text += std::string(request.kind == Kind::kSend ? ", to " : ", from ") +
            (request.root == kAnySource ? "any" : std::to_string(request.root)) + ", tag " +
            std::to_string(request.tag);
  if (request.device != kHost) text += ", cuda:" + std::to_string(request.device);
  return text + ")";
}

}  // namespace tutti
