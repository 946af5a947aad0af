#include "tutti/comm/validate.h"

#include <cstddef>
#include <functional>
#include <numeric>
#include <string>

#include "tutti/comm/kernels/reduce.h"

namespace tutti {
namespace {

struct Range {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
};

bool overlap(Range a, Range b) {
  const std::less<const std::byte*> before;
  return a.bytes > 0 && b.bytes > 0 && before(a.begin, b.begin + b.bytes) && before(b.begin, a.begin + a.bytes);
}

Status check_splits(const Request& r, int size) {
  if (r.kind != Kind::kAllToAll) return invalid_argument("splits are for all_to_all only");
  if (int(r.in_splits.size()) != size || int(r.out_splits.size()) != size)
    return invalid_argument(detail::words("in_splits has ", std::to_string(r.in_splits.size()), " and out_splits ",
                                          std::to_string(r.out_splits.size()), " entries, expected ", size, " each"));
  return {};
}

// The buffers that this rank gives to the call: what it reads and what it writes.
struct Buffers {
  Range in, out;
};

Status find_buffers(const Request& r, int rank, int size, Buffers& buffers) {
  const std::size_t n = std::size_t(size), element = size_of(r.dtype);
  std::size_t in = 0, out = 0;  // elements
  if (!r.in_splits.empty()) {
    in = std::accumulate(r.in_splits.begin(), r.in_splits.end(), std::size_t(0));
    out = std::accumulate(r.out_splits.begin(), r.out_splits.end(), std::size_t(0));
  } else {
    std::size_t all = 0;
    if (__builtin_mul_overflow(r.count, n * element, &all) || all > std::size_t(1) << 47)
      return invalid_argument(detail::words(std::to_string(r.count), " elements are more than any memory holds"));
    const bool root = rank == r.root;
    const bool gathers = r.kind == Kind::kGather || r.kind == Kind::kAllGather || r.kind == Kind::kAllToAll;
    const bool reads = r.kind == Kind::kScatter ? root : r.kind != Kind::kRecv && r.kind != Kind::kBroadcast;
    const bool writes = r.kind == Kind::kReduce || r.kind == Kind::kGather ? root : r.kind != Kind::kSend;
    in = reads ? r.count * (gives_parts(r.kind) ? n : 1) : 0;
    out = writes ? r.count * (gathers ? n : 1) : 0;
  }
  if (in > 0 && !r.in) return invalid_argument("the input buffer is null");
  if (out > 0 && !r.out) return invalid_argument("the output buffer is null");
  buffers = {{static_cast<const std::byte*>(r.in), in * element},
             {static_cast<const std::byte*>(r.out), out * element}};
  return {};
}

// Peers read the input while this rank's output is written.
Status check_overlap(const Request& r, const Buffers& b, int rank, int size) {
  if (b.in.begin == b.out.begin && b.in.bytes == b.out.bytes && r.in_splits.empty()) return {};
  if (!overlap(b.in, b.out)) return {};
  const std::string sizes = std::to_string(b.in.bytes) + " and " + std::to_string(b.out.bytes) + " bytes";
  if (!r.in_splits.empty())
    return invalid_argument("all_to_all with splits cannot be in place: in and out overlap", "give it another output");
  if (b.in.bytes == b.out.bytes)
    return invalid_argument("in and out (" + sizes + ") overlap in part",
                            "give the same memory twice (in place), or memory apart");
  // In place is the rank's own part of the larger one.
  const bool larger_in = b.in.bytes > b.out.bytes;
  const Range large = larger_in ? b.in : b.out, small = larger_in ? b.out : b.in;
  if (small.begin == large.begin + large.bytes / std::size_t(size) * std::size_t(rank)) return {};
  return invalid_argument(
      "in and out (" + sizes + ") overlap, but the smaller is not this rank's part of the larger",
      detail::words("in place means part ", rank, " of the ", size, " parts; else give memory apart"));
}

}  // namespace

Status validate(const Request& r, int rank, int size) {
  if ((has_root(r.kind) || is_point_to_point(r.kind)) && (r.root < 0 || r.root >= size))
    return invalid_argument(detail::words(is_point_to_point(r.kind) ? "the peer " : "the root ", r.root,
                                          " is not a rank of this group, which has ", size));
  if (is_point_to_point(r.kind) && r.root == rank)
    return invalid_argument("a rank cannot send to itself or receive from itself", "copy the buffer");
  if (is_reduction(r.kind)) TUTTI_TRY(check_reduction(r.dtype, r.op));
  if (!r.in_splits.empty() || !r.out_splits.empty()) TUTTI_TRY(check_splits(r, size));
  if (r.kind == Kind::kBarrier) return {};
  Buffers buffers;
  TUTTI_TRY(find_buffers(r, rank, size, buffers));
  return check_overlap(r, buffers, rank, size);
}

}  // namespace tutti
