// The names of calls for messages, and the limits that hold wherever a call is carried out.
#include "tutti/store/request.h"

#include <algorithm>

#include "tutti/base/text.h"

namespace tutti::store {
namespace {

const char* name(Op op) {
  switch (op) {
    case Op::kSet:
      return "set";
    case Op::kGet:
      return "get";
    case Op::kAdd:
      return "add";
    case Op::kCompareSet:
      return "compare_set";
    case Op::kWait:
      return "wait for";
    case Op::kCheck:
      return "check";
    case Op::kRemove:
      return "remove";
    case Op::kNumKeys:
      return "num_keys";
    case Op::kAppend:
      return "append";
    case Op::kMultiSet:
      return "multi_set";
    case Op::kPush:
      return "push";
    case Op::kPop:
      return "pop";
    case Op::kQueueLength:
      return "queue_length";
    case Op::kBarrier:
      return "barrier";
    case Op::kGatherAll:
      return "gather_all";
  }
  return "an unknown operation";
}

// A key as people should see it: keys are bytes, and may be long.
std::string quoted(const std::string& key) {
  std::string text = "\"";
  for (const char c : key.substr(0, 80)) text += c >= 32 && c < 127 ? c : '.';
  return text + (key.size() > 80 ? "...\"" : "\"");
}

std::string quoted_list(const std::vector<std::string>& keys) {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> parts;
  for (const auto& key : keys) {
    if (parts.size() == kShown) break;
    parts.push_back(quoted(key));
  }
  return join(parts, ", ") + (keys.size() > kShown ? " and " + std::to_string(keys.size() - kShown) + " more" : "");
}

Error limit_error(std::string detail) { return Error{.code = Code::kLimit, .detail = std::move(detail)}; }

// How many keys and values an operation takes.
bool has_shape_of_its_op(const Request& r) {
  const std::size_t keys = r.keys.size(), values = r.values.size();
  switch (r.op) {
    case Op::kSet:
    case Op::kAppend:
    case Op::kPush:
      return keys == 1 && values == 1;
    case Op::kGet:
    case Op::kWait:
    case Op::kCheck:
      return values == 0;
    case Op::kAdd:
    case Op::kRemove:
    case Op::kPop:
    case Op::kQueueLength:
      return keys == 1 && values == 0;
    case Op::kCompareSet:
      return keys == 1 && (values == 1 || values == 2);
    case Op::kNumKeys:
      return keys == 0 && values == 0;
    case Op::kMultiSet:
      return keys == values;
    case Op::kBarrier:
      return keys == 1 && values == 0;
    case Op::kGatherAll:
      return keys == 1 && values == 1;
  }
  return false;
}

}  // namespace

bool may_wait(Op op) {
  return op == Op::kGet || op == Op::kWait || op == Op::kPop || op == Op::kBarrier || op == Op::kGatherAll;
}

bool must_not_repeat(Op op) {
  switch (op) {
    case Op::kGet:
    case Op::kWait:
    case Op::kCheck:
    case Op::kNumKeys:
    case Op::kQueueLength:
      return false;
    case Op::kSet:
    case Op::kAdd:
    case Op::kCompareSet:
    case Op::kRemove:
    case Op::kAppend:
    case Op::kMultiSet:
    case Op::kPush:
    case Op::kPop:
    case Op::kBarrier:
    case Op::kGatherAll:
      return true;
  }
  return true;
}

std::string describe(const Request& request) {
  std::string text = name(request.op);
  if (request.keys.size() == 1) text += " " + quoted(request.keys[0]);
  if (request.keys.size() > 1) text += " " + std::to_string(request.keys.size()) + " keys";
  return text;
}

Status check_request(const Request& request) {
  if (!has_shape_of_its_op(request))
    return invalid_argument(std::to_string(request.keys.size()) + " keys and " + std::to_string(request.values.size()) +
                            " values were given");
  if (request.op == Op::kBarrier || request.op == Op::kGatherAll) {
    if (request.size < 1 || request.size > kMaxRanks)
      return invalid_argument("the number of ranks is " + std::to_string(request.size), "it is at least 1");
    if (request.rank < 0 || request.rank >= request.size)
      return invalid_argument("rank " + std::to_string(request.rank) + " is not from 0 to " +
                              std::to_string(request.size - 1));
  }
  if (request.keys.size() > kMaxKeysPerCall)
    return limit_error(std::to_string(request.keys.size()) + " keys in one call, at most " +
                       std::to_string(kMaxKeysPerCall) + " are allowed");
  std::size_t sum = 0;
  for (const auto& key : request.keys) {
    if (key.size() > kMaxKeyBytes)
      return limit_error("the key " + quoted(key) + " has " + std::to_string(key.size()) + " bytes, at most " +
                         bytes_text(kMaxKeyBytes) + " are allowed");
    sum += key.size();
  }
  for (const auto& value : request.values) {
    if (value.size() > kMaxValueBytes)
      return limit_error("the value has " + std::to_string(value.size()) + " bytes, at most " +
                         bytes_text(kMaxValueBytes) + " are allowed");
    sum += value.size();
  }
  if (sum > kMaxCallBytes)
    return limit_error("the keys and values have " + bytes_text(sum) + " in all, at most " + bytes_text(kMaxCallBytes) +
                       " fit one call");
  return {};
}

Error timeout_error(const Request& request, const Missing& missing, Deadline deadline) {
  Error error = deadline.error("no answer came");
  error.operation = describe(request);
  if (request.rank >= 0) error.rank = request.rank;
  if (!missing.ranks.empty()) {
    error.detail = ranks_words(missing.ranks) + " of " + std::to_string(request.size) + " did not arrive";
    error.hint = "read the logs of the missing ranks: they have ended, hang, or were never started";
  } else if (request.op == Op::kPop) {
    error.detail = "nothing was pushed";
  } else if (missing.keys.size() == 1 && request.keys.size() == 1) {
    error.detail = "the key was not set";
  } else if (!missing.keys.empty()) {
    error.detail = std::to_string(missing.keys.size()) + " of " + std::to_string(request.keys.size()) +
                   " keys were not set: " + quoted_list(missing.keys);
  }
  return error;
}

}  // namespace tutti::store
