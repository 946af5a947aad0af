#pragma once
// One operation of a group, as a value. The free functions of collectives.h fill it in; Group::run() and
// Group::submit() number, check and start it.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tutti/base/clock.h"
#include "tutti/base/dtype.h"
#include "tutti/comm/verb.h"

namespace tutti {

enum class ReduceOp : std::uint8_t { kSum, kAvg, kProduct, kMin, kMax, kBand, kBor, kBxor, kPremulSum };
inline constexpr ReduceOp kReduceOps[] = {ReduceOp::kSum, ReduceOp::kAvg,  ReduceOp::kProduct,
                                          ReduceOp::kMin, ReduceOp::kMax,  ReduceOp::kBand,
                                          ReduceOp::kBor, ReduceOp::kBxor, ReduceOp::kPremulSum};

// How the elements of the ranks are combined: an op, which converts to this, or premul_sum(factor).
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  double factor = 1;                                // premul_sum: of this rank's input
  constexpr Reduction(ReduceOp what) : op(what) {}  // NOLINT: meant to convert
  constexpr Reduction(ReduceOp what, double by) : op(what), factor(by) {}
};
// The sum of factor * in, each rank with a factor of its own: a weighted average where the factors add up to one.
// Floating and complex numbers only; 16-bit ones are multiplied and added in f32, and rounded once.
constexpr Reduction premul_sum(double factor) { return {ReduceOp::kPremulSum, factor}; }

// "sum", "avg", ...
const char* name(ReduceOp op);

// The buffers of the verbs. n = size of the group, `count` = elements as said here; `in` may equal `out` (in place)
// where the two have the same size, and for all_gather, gather, reduce_scatter, scatter where the small one is the
// rank's own part of the large.
//   barrier          none
//   broadcast        out: count elements; read on root, written elsewhere
//   reduce           in: count; out: count, on root only
//   all_reduce       in, out: count
//   scan, exscan     in, out: count; rank r gets the reduction of ranks 0 to r, or to r - 1: rank 0 of an exscan gets
//                    nothing, and its out is not used. kAvg divides by the number of ranks added
//   gather           in: count; out: n * count, on root only, by rank
//   all_gather       in: count; out: n * count, by rank
//   scatter          in: n * count, on root only, by rank; out: count
//   reduce_scatter   in: n * count; out: count: the reduced part of this rank
//   all_to_all       in: n * count; out: n * count; part r goes to, and came from, rank r. With in_splits/out_splits
//                    (elements for / from each rank, n entries each): uneven parts, one after another, and count is
//                    not used
//   gather_v         in: count; out: out_splits[r] from rank r, one after another, on root only, as are the splits
//   all_gather_v     in: out_splits[rank]; out: out_splits[r] from rank r; all ranks give the same splits
//   scatter_v        in: in_splits[r] for rank r, on root only, as are the splits; out: count
//   reduce_scatter_v in: in_splits[r] for rank r; out: in_splits[rank]; all ranks give the same splits
//                    (the _v verbs: part r may be empty; in place means as above)
//   send, recv       in (send) or out (recv): count; `root` is the peer, `tag` must match. A recv from kAnySource takes
//                    the first message with its tag, whoever sent it, and says who in *source
inline constexpr std::int32_t kAnySource = -1;
inline constexpr std::int32_t kHost = -1;  // a Request::device: memory of the CPU

struct Request {
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  std::int32_t root = 0;
  std::int32_t tag = 0;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  double factor = 1;                          // premul_sum: of this rank's input; ranks may give different ones
  std::span<const std::size_t> in_splits{};   // copied by submit()
  std::span<const std::size_t> out_splits{};  // likewise
  std::int32_t* source = nullptr;             // recv: who sent; written before the call ends, where it is not null
  Duration limit{0};                          // 0: the group's default
  // Where both buffers are: kHost, or the number of a CUDA device (docs/engines.md). On a device they are used after
  // all that stands on `stream` (a cudaStream_t; null is the default stream) at the time of the call, and the end of
  // the call means that the results are there, for every stream.
  std::int32_t device = kHost;
  void* stream = nullptr;
};

// "all_reduce (f32[1048576], sum)", "send (u8[16], to 3, tag 7)"
std::string to_string(const Request& request);

}  // namespace tutti
