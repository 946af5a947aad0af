// Headers are compared field by field. Fields that a verb does not use (the root of an all_reduce) are set to zero
// first. The error text shows the peer's call as it reads on the peer.
#include "tutti/comm/links/call_header.h"

#include <numeric>
#include <span>

#include "tutti/comm/layout.h"

namespace tutti::comm {
namespace {

// The header of a rank's messages to another, from the splits of one of the two. If all ranks pass the same splits, the
// header covers all of them.
CallHeader header(const Request& request, Algorithm algorithm, std::uint64_t sequence,
                  std::span<const std::size_t> splits, int peer) {
  const bool all_give = has_common_splits(request.kind);
  if (all_give) splits = common_splits(request);
  const std::size_t count = all_give         ? std::reduce(splits.begin(), splits.end())
                            : splits.empty() ? request.count
                                             : splits[std::size_t(peer)];
  return {.kind = request.kind,
          .dtype = request.dtype,
          .op = is_reduction(request.kind) ? request.op : ReduceOp::kSum,
          .algorithm = algorithm,
          .sequence = sequence,
          .count = count,
          .root = has_root(request.kind) ? request.root : 0,
          .tag = all_give ? std::int32_t(digest_of(splits)) : 0};
}

}  // namespace

CallHeader header_of(const Request& request, Algorithm algorithm, std::uint64_t sequence, int peer) {
  return header(request, algorithm, sequence, request.in_splits, peer);
}

CallHeader expected_header(const Request& request, Algorithm algorithm, std::uint64_t sequence, int peer) {
  return header(request, algorithm, sequence, request.out_splits, peer);
}

std::optional<Error> compare(const CallHeader& came, const CallHeader& expected, const Request& request, int peer) {
  if (came.magic != expected.magic || came.kind > Kind::kRecv || came.dtype > DType::kC128 ||
      came.op > ReduceOp::kPremulSum || came.algorithm > kLastAlgorithm) {
    return Error{.code = Code::kMismatch,
                 .detail = "sent bytes that do not begin a call",
                 .hint = "the two ranks run different programs, or machines of different byte order",
                 .peer = peer};
  }
  const bool same_call = came.kind == expected.kind && came.dtype == expected.dtype && came.op == expected.op &&
                         came.root == expected.root;
  const bool splits = verb(expected.kind).splits != Verb::Splits::kNone;
  if (same_call && came.count == expected.count && came.algorithm == expected.algorithm &&
      came.sequence == expected.sequence && came.tag == expected.tag)
    return {};
  Error error{.code = Code::kMismatch,
              .hint = "every rank of a group has to make the same calls in the same order",
              .peer = peer};
  const Request theirs{.kind = came.kind, .dtype = came.dtype, .op = came.op, .root = came.root, .count = came.count};
  error.detail = "called " + call_text(theirs, came.sequence);
  if (splits && same_call && came.sequence == expected.sequence && came.tag != expected.tag) {
    error.detail = "gave " + call_text(request, expected.sequence) + " other splits than this rank";
    error.hint = "every rank of the group gives the same splits";
  } else if (splits && same_call && came.sequence == expected.sequence && came.count != expected.count) {
    error.detail = "sends " + std::to_string(came.count) + " elements to this rank, which expects " +
                   std::to_string(expected.count);
    error.hint = !has_root(expected.kind)    ? "in_splits of the sender and out_splits of the receiver must agree"
                 : gets_parts(expected.kind) ? "out_splits of the root and the sender's count must agree"
                                             : "in_splits of the root and this rank's count must agree";
  } else if (same_call && came.count == expected.count && came.sequence == expected.sequence) {
    error.detail += std::string(" by the plan ") + name(came.algorithm) + ", this rank by " + name(expected.algorithm);
    error.hint = expected.kind == Kind::kAllToAll ? "splits are given by all ranks of the group or by none"
                                                  : "all ranks choose alike: this is a defect of tutti";
  } else {
    error.detail += ", this rank " + call_text(request, expected.sequence);
  }
  return error;
}

std::string call_text(const Request& request, std::uint64_t sequence) {
  std::string text = to_string(request);
  text.insert(std::string(name(request.kind)).size(), " #" + std::to_string(sequence));
  return text;
}

}  // namespace tutti::comm
