// The loops behind reduce.h, compiled once per instruction set: each reduce_<isa>.cc defines TUTTI_ISA and includes
// this file. Not for other includes.
//
// One pass: load element i of every input in rank order, combine in registers, store to every output. For 2 to 4 inputs
// the loop over inputs is unrolled at compile time. An output may be the same buffer as an input, but never shifted
// against it, so no iteration depends on another.
#include <algorithm>
#include <type_traits>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "tutti/base/float16.h"
#include "tutti/base/independent_loop.h"
#include "tutti/comm/kernels/reduce_isa.h"

namespace tutti::kernels::TUTTI_ISA {
namespace {

// How an element is stored, and the type in which it is combined.
template <class Stored>
struct Element {
  using Wide = Stored;
  static Wide load(Stored value) { return value; }
  static Stored store(Wide value) { return value; }
};
template <>
struct Element<BFloat16> {
  using Wide = float;
  static float load(BFloat16 value) { return to_float(value); }
  static BFloat16 store(float value) { return to_bfloat16(value); }
};
template <>
struct Element<Half> {
  using Wide = float;
  static float load(Half value) { return to_float(value); }
  static Half store(float value) { return to_half(value); }
};

// T is a number or a vector of numbers. Integer sums and products wrap (-fwrapv).
template <ReduceOp op, bool kInteger, class T>
[[gnu::always_inline]] inline T combine(T a, T b) {
  if constexpr (op == ReduceOp::kSum || op == ReduceOp::kAvg || op == ReduceOp::kPremulSum)
    return a + b;
  else if constexpr (op == ReduceOp::kProduct)
    return a * b;
  else if constexpr (op == ReduceOp::kMin)
    return ((b < a) | (b != b)) ? b : a;  // NaN wins, as in PyTorch
  else if constexpr (op == ReduceOp::kMax)
    return ((a < b) | (b != b)) ? b : a;
  else if constexpr (kInteger && op == ReduceOp::kBand)
    return a & b;
  else if constexpr (kInteger && op == ReduceOp::kBor)
    return a | b;
  else if constexpr (kInteger && op == ReduceOp::kBxor)
    return a ^ b;
  else
    return a;  // excluded by check_reduction()
}

// An element of input `r` before it is combined.
template <ReduceOp op, class Wide>
[[gnu::always_inline]] inline Wide scaled(const Inputs& io, int r, Wide value) {
  if constexpr (op == ReduceOp::kPremulSum)
    return Wide(value * Wide(io.factors[r]));
  else
    return value;
}

// Stores a line of 64 bytes to an aligned address, bypassing the caches.
[[gnu::always_inline]] inline void stream_line(void* to, const void* from) {
#if defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif defined(__AVX__)
  for (int i = 0; i < 2; ++i)
    _mm256_stream_si256(static_cast<__m256i*>(to) + i, _mm256_loadu_si256(static_cast<const __m256i_u*>(from) + i));
#elif defined(__SSE2__)
  for (int i = 0; i < 4; ++i)
    _mm_stream_si128(static_cast<__m128i*>(to) + i, _mm_loadu_si128(static_cast<const __m128i_u*>(from) + i));
#else
  __builtin_memcpy(to, from, 64);
#endif
}

// The elements from `begin` to `end`, one by one.
template <class Stored, ReduceOp op>
void run_scalar(const Inputs& io, std::size_t begin, std::size_t end) {
  using E = Element<Stored>;
  using Wide = typename E::Wide;
  TUTTI_INDEPENDENT
  for (std::size_t i = begin; i < end; ++i) {
    Wide sum = scaled<op, Wide>(io, 0, E::load(static_cast<const Stored*>(io.in[0])[i]));
    for (int r = 1; r < io.inputs; ++r)
      sum = Wide(combine<op, std::is_integral_v<Wide>, Wide>(
          sum, scaled<op, Wide>(io, r, E::load(static_cast<const Stored*>(io.in[r])[i]))));
    if constexpr (op == ReduceOp::kAvg) sum = Wide(sum / Wide(io.divisor));
    const Stored value = E::store(sum);
    for (int k = 0; k < io.outputs; ++k) static_cast<Stored*>(io.out[k])[i] = value;
  }
}

// 16-bit floats: blocks are widened into an array of floats, which the compiler keeps in vector registers.
template <class Stored, ReduceOp op, int kInputs, bool kStreams>
void run_widened(const Inputs& io) {
  using E = Element<Stored>;
  constexpr std::size_t kBlock = 64;
  const int inputs = kInputs > 0 ? kInputs : io.inputs;
  std::size_t i = kStreams ? io.head : 0;
  run_scalar<Stored, op>(io, 0, i);
  for (; i + kBlock <= io.count; i += kBlock) {
    float sum[kBlock];
    const Stored* const first = static_cast<const Stored*>(io.in[0]) + i;
    TUTTI_INDEPENDENT
    for (std::size_t j = 0; j < kBlock; ++j) sum[j] = scaled<op, float>(io, 0, E::load(first[j]));
    for (int r = 1; r < inputs; ++r) {
      const Stored* const next = static_cast<const Stored*>(io.in[r]) + i;
      TUTTI_INDEPENDENT
      for (std::size_t j = 0; j < kBlock; ++j)
        sum[j] = combine<op, false, float>(sum[j], scaled<op, float>(io, r, E::load(next[j])));
    }
    Stored done[kBlock];
    const float divisor = float(io.divisor);
    TUTTI_INDEPENDENT
    for (std::size_t j = 0; j < kBlock; ++j) done[j] = E::store(op == ReduceOp::kAvg ? sum[j] / divisor : sum[j]);
    for (int k = 0; k < io.outputs; ++k) {
      Stored* const to = static_cast<Stored*>(io.out[k]) + i;
      if constexpr (kStreams)
        for (std::size_t j = 0; j < kBlock; j += 64 / sizeof(Stored)) stream_line(to + j, done + j);
      else
        __builtin_memcpy(to, done, sizeof done);
    }
  }
  run_scalar<Stored, op>(io, i, io.count);
}

// All other types: four vectors of 64 bytes at a time. The pointers are first copied to the stack. A store through a
// vector type may alias anything, so otherwise the pointers would be reloaded after each store.
template <class Stored, ReduceOp op, int kInputs, int kOutputs, bool kStreams>
void run_vectors(const Inputs& io) {
  typedef Stored Vector __attribute__((vector_size(64)));
  typedef Stored Unaligned __attribute__((vector_size(64), aligned(1), may_alias));
  constexpr std::size_t kLanes = 64 / sizeof(Stored), kUnroll = 4;
  constexpr int kMost = 256;
  const int inputs = kInputs > 0 ? kInputs : io.inputs, outputs = kOutputs > 0 ? kOutputs : io.outputs;
  if (inputs > kMost || outputs > kMost) return run_scalar<Stored, op>(io, 0, io.count);
  const Stored* in[kInputs > 0 ? kInputs : kMost];
  Stored* out[kOutputs > 0 ? kOutputs : kMost];
  for (int r = 0; r < inputs; ++r) in[r] = static_cast<const Stored*>(io.in[r]);
  for (int k = 0; k < outputs; ++k) out[k] = static_cast<Stored*>(io.out[k]);
  const std::size_t count = io.count;
  const Stored divisor = Stored(io.divisor);
  std::size_t i = kStreams ? io.head : 0;
  run_scalar<Stored, op>(io, 0, i);
  for (; i + kUnroll * kLanes <= count; i += kUnroll * kLanes) {
    Vector sum[kUnroll];
    const auto load = [&](int r, std::size_t j) {
      Vector value = *reinterpret_cast<const Unaligned*>(in[r] + i + j * kLanes);
      if constexpr (op == ReduceOp::kPremulSum) value *= Stored(io.factors[r]);
      return value;
    };
    for (std::size_t j = 0; j < kUnroll; ++j) sum[j] = load(0, j);
    for (int r = 1; r < inputs; ++r)
      for (std::size_t j = 0; j < kUnroll; ++j)
        sum[j] = combine<op, std::is_integral_v<Stored>, Vector>(sum[j], load(r, j));
    if constexpr (op == ReduceOp::kAvg)
      for (std::size_t j = 0; j < kUnroll; ++j) sum[j] /= divisor;
    for (int k = 0; k < outputs; ++k)
      for (std::size_t j = 0; j < kUnroll; ++j)
        if constexpr (kStreams)
          stream_line(out[k] + i + j * kLanes, &sum[j]);
        else
          *reinterpret_cast<Unaligned*>(out[k] + i + j * kLanes) = sum[j];
  }
  run_scalar<Stored, op>(io, i, count);
}

template <class Stored, ReduceOp op, int kInputs, int kOutputs, bool kStreams = false>
void run(const Inputs& io) {
  if constexpr (std::is_same_v<typename Element<Stored>::Wide, Stored>)
    run_vectors<Stored, op, kInputs, kOutputs, kStreams>(io);
  else
    run_widened<Stored, op, kInputs, kStreams>(io);
}

// The most frequent shapes in training are unrolled: floating sums of 2 to 4 ranks into one output or into all. Each
// shape compiles one more function, so the other operations and types share the general loop.
template <class Stored, ReduceOp op>
void by_shape(const Inputs& io) {
  constexpr bool kIsSum = !std::is_integral_v<Stored> && (op == ReduceOp::kSum || op == ReduceOp::kAvg);
  if (io.streams) {
    constexpr bool kStreams = true;
    if constexpr (kIsSum)
      if (io.inputs == 2 && io.outputs == 1) return run<Stored, op, 2, 1, kStreams>(io);
    return run<Stored, op, 0, 0, kStreams>(io);
  }
  if constexpr (kIsSum) {
    if (io.inputs == 2 && io.outputs == 2) return run<Stored, op, 2, 2>(io);
    if (io.inputs == 2 && io.outputs == 1) return run<Stored, op, 2, 1>(io);
    if (io.inputs == 3 && io.outputs == 3) return run<Stored, op, 3, 3>(io);
    if (io.inputs == 4 && io.outputs == 4) return run<Stored, op, 4, 4>(io);
  }
  run<Stored, op, 0, 0>(io);
}

// Combinations that check_reduction() rejects are not compiled.
template <class Stored>
void by_op(const Inputs& io) {
  constexpr bool kInteger = std::is_integral_v<Stored>;
  switch (io.op) {
    case ReduceOp::kSum:
      return by_shape<Stored, ReduceOp::kSum>(io);
    case ReduceOp::kAvg:
      if constexpr (sizeof(Stored) > 1) by_shape<Stored, ReduceOp::kAvg>(io);
      return;
    case ReduceOp::kProduct:
      return by_shape<Stored, ReduceOp::kProduct>(io);
    case ReduceOp::kMin:
      return by_shape<Stored, ReduceOp::kMin>(io);
    case ReduceOp::kMax:
      return by_shape<Stored, ReduceOp::kMax>(io);
    case ReduceOp::kBand:
      if constexpr (kInteger) by_shape<Stored, ReduceOp::kBand>(io);
      return;
    case ReduceOp::kBor:
      if constexpr (kInteger) by_shape<Stored, ReduceOp::kBor>(io);
      return;
    case ReduceOp::kBxor:
      if constexpr (kInteger) by_shape<Stored, ReduceOp::kBxor>(io);
      return;
    case ReduceOp::kPremulSum:
      if constexpr (!kInteger) by_shape<Stored, ReduceOp::kPremulSum>(io);
      return;
  }
}

}  // namespace

void reduce(const Inputs& io) {
  switch (io.dtype) {
    case DType::kF32:
      return by_op<float>(io);
    case DType::kF64:
      return by_op<double>(io);
    case DType::kF16:
      return by_op<Half>(io);
    case DType::kBF16:
      return by_op<BFloat16>(io);
    case DType::kI8:
      return by_op<std::int8_t>(io);
    case DType::kU8:
      return by_op<std::uint8_t>(io);
    case DType::kI32:
      return by_op<std::int32_t>(io);
    case DType::kI64:
      return by_op<std::int64_t>(io);
    case DType::kBool:
      return by_op<std::uint8_t>(io);  // 0 or 1; reduce.cc has replaced sum by bor and product by band
    case DType::kC64:
    case DType::kC128:
      return;  // reduce.cc has split them into twice as many real numbers
  }
}

}  // namespace tutti::kernels::TUTTI_ISA
