// Selects the loops for the widest instruction set of this CPU once, and the kind of stores for each call. An ordinary
// store to an output that is not an input would read each line from memory only to overwrite it. From kStreamFrom bytes
// on the result is therefore streamed past the caches. This saves a fourth of the traffic of a reduce_scatter of 64
// MiB.
#include "tutti/comm/kernels/reduce.h"

#include <algorithm>
#include <cstdint>

#include "tutti/comm/kernels/copy.h"
#include "tutti/comm/kernels/loops.h"

namespace tutti::comm {
namespace {

const auto kLoop = kernels::widest_loops().reduce;

// Streams the outputs if they are large, none is an input, and all have the same alignment within a line.
void choose_stores(kernels::Inputs& io) {
  constexpr std::uintptr_t kLine = 64;
  const std::size_t size = size_of(io.dtype);
  if (io.count * size < kStreamFrom) return;
  const auto place = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % kLine; };
  const std::span in(io.in, std::size_t(io.inputs));
  for (const void* const out : std::span(io.out, std::size_t(io.outputs)))
    if (place(out) != place(io.out[0]) || std::find(in.begin(), in.end(), out) != in.end()) return;
  const std::size_t before = (kLine - place(io.out[0])) % kLine;
  if (before % size != 0) return;
  io.streams = true;
  io.head = before / size;
}

}  // namespace

ReduceOp op_for_bool(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kMax:
      return ReduceOp::kBor;
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
      return ReduceOp::kBand;
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor:
    case ReduceOp::kPremulSum:
      return op;
  }
  return op;
}

void reduce_many(DType dtype, ReduceOp op, std::span<const void* const> in, std::span<void* const> out,
                 std::size_t count, int divisor, const double* factors) {
  if (is_complex(dtype)) {  // the supported ops treat real and imaginary parts alike
    dtype = dtype == DType::kC64 ? DType::kF32 : DType::kF64;
    count *= 2;
  }
  if (dtype == DType::kBool)
    op = op_for_bool(op);
  else if (op == ReduceOp::kAvg && divisor == 1)
    op = ReduceOp::kSum;
  kernels::Inputs io{dtype, op, in.data(), int(in.size()), out.data(), int(out.size()), count, divisor, factors};
  choose_stores(io);
  kLoop(io);
  if (io.streams) fence_streams();
}

void reduce_pair(DType dtype, ReduceOp op, void* into, const void* other, std::size_t count) {
  const void* const in[] = {into, other};
  void* const out[] = {into};
  reduce_many(dtype, op, in, out, count, 1);
}

void divide(DType dtype, void* data, std::size_t count, int divisor) {
  const void* const in[] = {data};
  void* const out[] = {data};
  if (divisor != 1 && dtype != DType::kBool) reduce_many(dtype, ReduceOp::kAvg, in, out, count, divisor);
}

Status check_reduction(DType dtype, ReduceOp op) {
  if (is_complex(dtype) && op != ReduceOp::kSum && op != ReduceOp::kAvg && op != ReduceOp::kPremulSum)
    return invalid_argument(
        detail::words("the operation ", name(op), " is not for complex numbers (", name(dtype), ")"),
        "they take sum, avg and premul_sum");
  if (op == ReduceOp::kPremulSum && !is_floating(dtype) && !is_complex(dtype))
    return invalid_argument(
        detail::words("the operation premul_sum is for floating and complex numbers, not for ", name(dtype)));
  const bool bitwise = op == ReduceOp::kBand || op == ReduceOp::kBor || op == ReduceOp::kBxor;
  if (bitwise && is_floating(dtype))
    return invalid_argument(
        detail::words("the operation ", name(op), " is for integers and bool, not for ", name(dtype)));
  if (op == ReduceOp::kAvg && dtype == DType::kBool)
    return invalid_argument("the operation avg is not for bool", "use min, max, band or bor");
  if (op == ReduceOp::kAvg && size_of(dtype) == 1)
    return invalid_argument(
        detail::words("the operation avg is not for ", name(dtype), ": a sum of 8-bit integers wraps around"),
        "convert to i32 first");
  return {};
}

}  // namespace tutti::comm
