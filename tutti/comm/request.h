#pragma once
// One operation of a group, as a value. The free functions of collectives.h create it. Group::run() and Group::submit()
// number, check and start it.
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

// How the inputs of the ranks are combined: an op, which converts to this type, or premul_sum(factor).
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  double factor = 1;                                // for premul_sum: the factor of this rank's input
  constexpr Reduction(ReduceOp what) : op(what) {}  // NOLINT: meant to convert
  constexpr Reduction(ReduceOp what, double by) : op(what), factor(by) {}
};
// The sum of factor * in. Each rank has its own factor; if the factors add up to one, this is a weighted average.
// Floating and complex types only. 16-bit types are multiplied and added in f32 and rounded once.
constexpr Reduction premul_sum(double factor) { return {ReduceOp::kPremulSum, factor}; }

// "sum", "avg", ...
const char* name(ReduceOp op);

// The buffers of the verbs, where n is the size of the group and `count` is in elements. `in` may equal `out` (in
// place) if both have the same size. In all_gather, gather, reduce_scatter and scatter, in place means that the small
// buffer is the rank's own part of the large one.
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
//   all_to_all       in: n * count; out: n * count; part r goes to, or comes from, rank r. With in_splits, out_splits
//                    (elements for and from each rank, n entries each): uneven parts, one after another; count is
//                    unused
//   gather_v         in: count; out: out_splits[r] from rank r, one after another, on root only, as are the splits
//   all_gather_v     in: out_splits[rank]; out: out_splits[r] from rank r; all ranks pass the same splits
//   scatter_v        in: in_splits[r] for rank r, on root only, as are the splits; out: count
//   reduce_scatter_v in: in_splits[r] for rank r; out: in_splits[rank]; all ranks pass the same splits
//                    (in the _v verbs part r may be empty; in place as above)
//   send, recv       in (send) or out (recv): count; `root` is the peer, `tag` must match. A recv from kAnySource takes
//                    the first message with its tag from any rank, and stores the sender in *source
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
  double factor = 1;                          // for premul_sum: of this rank's input; may differ between ranks
  std::span<const std::size_t> in_splits{};   // copied by submit()
  std::span<const std::size_t> out_splits{};  // copied by submit()
  std::int32_t* source = nullptr;             // recv: set to the sender before the call ends, if not null
  Duration limit{0};                          // 0: the group's default
  // The memory of both buffers: kHost, or the number of a CUDA device (docs/how-to/choose-an-engine.md). On a device
  // they are used after all work that is on `stream` at the time of the call (a cudaStream_t; null is the default
  // stream). When the call has ended, the results are visible to every stream.
  std::int32_t device = kHost;
  void* stream = nullptr;
};

// "all_reduce (f32[1048576], sum)", "send (u8[16], to 3, tag 7)"
std::string to_string(const Request& request);

}  // namespace tutti
