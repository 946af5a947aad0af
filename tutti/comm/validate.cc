#include "tutti/comm/validate.h"

#include <cmath>
#include <cstddef>
#include <functional>
#include <string>

#include "tutti/base/text.h"
#include "tutti/comm/kernels/reduce.h"
#include "tutti/comm/layout.h"

namespace tutti::comm {
namespace {

struct ByteRange {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
};

bool overlap(ByteRange a, ByteRange b) {
  const std::less<const std::byte*> before;
  return a.bytes > 0 && b.bytes > 0 && before(a.begin, b.begin + b.bytes) && before(b.begin, a.begin + a.bytes);
}

// Splits must be present exactly where the verb has them, with one entry per rank.
Status check_splits(const Request& r, int rank, int size) {
  const auto wrong = [&](const char* what, std::span<const std::size_t> splits) {
    return invalid_argument(detail::words(what, " has ", std::to_string(splits.size()), " entries, expected ", size,
                                          ", one for each rank"));
  };
  const bool root = rank == r.root;
  const auto wants = [&](Verb::Splits own) {
    if (verb(r.kind).splits == Verb::Splits::kBoth) return !r.in_splits.empty() || !r.out_splits.empty();
    return verb(r.kind).splits == own && (!has_root(r.kind) || root);
  };
  const bool ins = wants(Verb::Splits::kIn), outs = wants(Verb::Splits::kOut);
  if (ins && int(r.in_splits.size()) != size) return wrong("in_splits", r.in_splits);
  if (outs && int(r.out_splits.size()) != size) return wrong("out_splits", r.out_splits);
  if ((!ins && !r.in_splits.empty()) || (!outs && !r.out_splits.empty())) {
    if (is_uneven(r.kind) && has_root(r.kind)) return invalid_argument("splits are given on the root only");
    return invalid_argument(detail::words(ins || outs ? "the other splits" : "splits", " are not for ", name(r.kind)),
                            "all_to_all and scatter_v, reduce_scatter_v take in_splits; all_to_all and gather_v, "
                            "all_gather_v take out_splits");
  }
  const auto own = [&](const char* what, std::size_t part) {
    return invalid_argument(detail::words(what, "[", rank, "] is ", std::to_string(part),
                                          ", but this rank's own part has ", std::to_string(r.count), " elements"));
  };
  if (!has_root(r.kind) || !root) return {};
  const std::size_t part = (ins ? r.in_splits : r.out_splits)[std::size_t(rank)];
  return part == r.count ? Status() : own(ins ? "in_splits" : "out_splits", part);
}

// The buffers that this rank passes to the call: one to read, one to write.
struct Buffers {
  ByteRange in, out;
};

Status find_buffers(const Request& r, int rank, int size, Buffers& buffers) {
  const auto extent = extent_of(r, rank, size);
  if (!extent)
    return invalid_argument(
        detail::words(r.in_splits.empty() && r.out_splits.empty() ? std::to_string(r.count) : std::string("so many"),
                      " elements are more than any memory holds"));
  if (extent->in > 0 && !r.in) return invalid_argument("the input buffer is null");
  if (extent->out > 0 && !r.out) return invalid_argument("the output buffer is null");
  const std::size_t element = size_of(r.dtype);
  buffers = {{static_cast<const std::byte*>(r.in), extent->in * element},
             {static_cast<const std::byte*>(r.out), extent->out * element}};
  return {};
}

// Overlaps are rejected because peers read the input while this rank's output is written.
Status check_overlap(const Request& r, const Buffers& b, int rank, int size) {
  const bool exchanges_unevenly = r.kind == Kind::kAllToAll && !r.in_splits.empty();
  if (b.in.begin == b.out.begin && b.in.bytes == b.out.bytes && !exchanges_unevenly) return {};
  if (!overlap(b.in, b.out)) return {};
  if (exchanges_unevenly)
    return invalid_argument("all_to_all with splits cannot be in place: in and out overlap", "give it another output");
  const std::string sizes = std::to_string(b.in.bytes) + " and " + std::to_string(b.out.bytes) + " bytes";
  if (gives_parts(r.kind) == gets_parts(r.kind))
    return invalid_argument("in and out (" + sizes + ") overlap in part",
                            "give the same memory twice (in place), or memory apart");
  // In place, the smaller buffer is the rank's own part of the larger one.
  const ByteRange large = gives_parts(r.kind) ? b.in : b.out, small = gives_parts(r.kind) ? b.out : b.in;
  if (small.begin == large.begin + own_part_offset(r, rank)) return {};
  return invalid_argument(
      "in and out (" + sizes + ") overlap, but the smaller is not this rank's part of the larger",
      detail::words("in place means part ", rank, " of the ", size, " parts; else give memory apart"));
}

}  // namespace

Error not_a_rank(const char* what, int given, int size) {
  return invalid_argument(
      detail::words("the ", what, " ", given, " is not a rank of this group, which has ", size),
      size == 1 ? "its only rank is 0" : detail::words("they are 0 to ", size - 1, ", numbered within the group"));
}

Status validate(const Request& r, int rank, int size) {
  if (r.device < kHost) return invalid_argument(detail::words("the device is ", r.device), "kHost, or from 0 the GPUs");
  if (r.limit < Duration(0))
    return invalid_argument("the limit is " + seconds_text(to_seconds(r.limit)),
                            "give the time that the call may take, or 0 for the deadline of the group");
  const bool from_any = r.kind == Kind::kRecv && r.root == kAnySource;
  if (from_any && size == 1) return invalid_argument("this group has no other rank that could send");
  if (!from_any && (has_root(r.kind) || is_point_to_point(r.kind)) && (r.root < 0 || r.root >= size))
    return not_a_rank(is_point_to_point(r.kind) ? "peer" : "root", r.root, size);
  if (is_point_to_point(r.kind) && r.root == rank)
    return invalid_argument("a rank cannot send to itself or receive from itself", "copy the buffer");
  if (is_reduction(r.kind)) {
    TUTTI_TRY(check_reduction(r.dtype, r.op));
    if (r.op == ReduceOp::kPremulSum && !std::isfinite(r.factor))
      return invalid_argument(detail::words("the factor of premul_sum is ", r.factor), "give a finite number");
  }
  if (is_uneven(r.kind) || !r.in_splits.empty() || !r.out_splits.empty()) TUTTI_TRY(check_splits(r, rank, size));
  if (verb(r.kind).combine == Verb::Combine::kNothing) return {};
  Buffers buffers;
  TUTTI_TRY(find_buffers(r, rank, size, buffers));
  return check_overlap(r, buffers, rank, size);
}

}  // namespace tutti::comm
