// The one place where the fields of an Error become a message. The place that fails writes detail and hint. Order:
// code, operation, group, rank, peer, detail, address, time waited, errno's text, root cause or hint.
#include "tutti/base/error.h"

#include <cstring>

#include "tutti/base/text.h"

namespace tutti {

const char* name(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "InvalidArgument";
    case Code::kUsage:
      return "Usage";
    case Code::kMismatch:
      return "Mismatch";
    case Code::kTimeout:
      return "Timeout";
    case Code::kPeerLost:
      return "PeerLost";
    case Code::kAborted:
      return "Aborted";
    case Code::kRefused:
      return "Refused";
    case Code::kUnreachable:
      return "Unreachable";
    case Code::kAddressInUse:
      return "AddressInUse";
    case Code::kNotFound:
      return "NotFound";
    case Code::kCorrupt:
      return "Corrupt";
    case Code::kLimit:
      return "Limit";
    case Code::kNonFinite:
      return "NonFinite";
    case Code::kUnsupported:
      return "Unsupported";
    case Code::kSystem:
      return "System";
    case Code::kInternal:
      return "Internal";
  }
  return "?";
}

std::string to_string(const Error& e) {
  std::string text = name(e.code);
  text += ": ";
  std::string where = e.operation;
  if (!e.group.empty()) where += (where.empty() ? "group " : " on group ") + e.group;
  if (e.rank >= 0) where += (where.empty() ? "rank " : ", rank ") + std::to_string(e.rank);
  if (!where.empty()) text += where + ": ";
  if (e.peer >= 0) text += "rank " + std::to_string(e.peer) + (e.address.empty() ? " " : " at " + e.address + " ");
  text += e.detail;
  if (e.peer < 0 && !e.address.empty()) text += " at " + e.address;
  if (e.waited >= 0) {
    text += " after " + seconds_text(e.waited);
    if (e.limit >= 0) text += " of " + seconds_text(e.limit);
  }
  if (e.errno_value != 0) text += std::string(": ") + std::strerror(e.errno_value);
  // No hint of its own: the remedy follows from the cause, whose text has a hint.
  if (!e.cause.empty()) return text + "; root cause: " + e.cause;
  if (!e.hint.empty()) text += " (hint: " + e.hint + ")";
  return text;
}

Error system_error(int errno_value, std::string what, std::string hint) {
  return Error{.code = Code::kSystem, .detail = std::move(what), .hint = std::move(hint), .errno_value = errno_value};
}

namespace detail {

void fail_requirement(const char* condition, std::string detail, std::string hint) {
  if (detail.empty()) detail = words("expected ", condition);
  throw Exception(Error{.code = Code::kInvalidArgument, .detail = std::move(detail), .hint = std::move(hint)});
}

void fail_invariant(const char* condition, const char* file, int line, std::string detail) {
  throw Exception(Error{.code = Code::kInternal,
                        .detail = words(detail, " (broken invariant ", condition, " at ", file, ":", line, ")"),
                        .hint = "this is a defect of tutti: please report it with this line"});
}

}  // namespace detail

}  // namespace tutti
