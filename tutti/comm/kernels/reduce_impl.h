// The loops behind reduce.h, compiled once per instruction set: each reduce_<isa>.cc defines TUTTI_ISA and includes this
// file. Not for other includes.
//
// One pass: load element i of every input in rank order, combine in registers, store to every output. The streams are
// only p wide, so for p = 2..4 the loop over inputs is unrolled at compile time; blocks of kBlock elements live in an
// array that the compiler keeps in vector registers. Inputs and outputs may be the same buffer at the same index, never
// shifted against one another, so no iteration depends on another (the ivdep pragma says so).
#include <algorithm>
#include <type_traits>

#include "tutti/base/float16.h"
#include "tutti/comm/kernels/reduce_isa.h"

namespace tutti::kernels::TUTTI_ISA {
namespace {

// How an element is stored, and in which type it is combined.
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

// Integer sums and products wrap: computed unsigned, where overflow is defined.
template <class T>
struct Arithmetic {
  using type = T;
};
template <class T>
  requires std::is_integral_v<T>
struct Arithmetic<T> {
  using type = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
};

template <ReduceOp op, class T>
inline T combine(T a, T b) {
  using A = typename Arithmetic<T>::type;
  if constexpr (op == ReduceOp::kSum || op == ReduceOp::kAvg) return T(A(a) + A(b));
  else if constexpr (op == ReduceOp::kProduct) return T(A(a) * A(b));
  else if constexpr (op == ReduceOp::kMin) return b < a || b != b ? b : a;  // NaN wins, as in PyTorch
  else if constexpr (op == ReduceOp::kMax) return a < b || b != b ? b : a;
  else if constexpr (std::is_integral_v<T> && op == ReduceOp::kBand) return T(a & b);
  else if constexpr (std::is_integral_v<T> && op == ReduceOp::kBor) return T(a | b);
  else if constexpr (std::is_integral_v<T> && op == ReduceOp::kBxor) return T(a ^ b);
  else return a;  // excluded by check_reduction()
}

template <class Stored, ReduceOp op, int kInputs>
void run(const Inputs& io) {
  using E = Element<Stored>;
  using Wide = typename E::Wide;
  constexpr std::size_t kBlock = 256 / sizeof(Stored);
  const int inputs = kInputs > 0 ? kInputs : io.inputs;
  const auto input = [&](int r) { return static_cast<const Stored*>(io.in[r]); };
  const auto finish = [&](Wide value) {
    if constexpr (op == ReduceOp::kAvg) value = Wide(value / Wide(io.divisor));
    return E::store(value);
  };
  std::size_t i = 0;
  for (; i + kBlock <= io.count; i += kBlock) {
    Wide sum[kBlock];
    const Stored* first = input(0) + i;
#pragma GCC ivdep
    for (std::size_t j = 0; j < kBlock; ++j) sum[j] = E::load(first[j]);
#pragma GCC unroll 4
    for (int r = 1; r < inputs; ++r) {
      const Stored* next = input(r) + i;
#pragma GCC ivdep
      for (std::size_t j = 0; j < kBlock; ++j) sum[j] = combine<op, Wide>(sum[j], E::load(next[j]));
    }
    Stored done[kBlock];
#pragma GCC ivdep
    for (std::size_t j = 0; j < kBlock; ++j) done[j] = finish(sum[j]);
    for (int k = 0; k < io.outputs; ++k) __builtin_memcpy(static_cast<Stored*>(io.out[k]) + i, done, sizeof done);
  }
  for (; i < io.count; ++i) {
    Wide sum = E::load(input(0)[i]);
    for (int r = 1; r < inputs; ++r) sum = combine<op, Wide>(sum, E::load(input(r)[i]));
    const Stored value = finish(sum);
    for (int k = 0; k < io.outputs; ++k) static_cast<Stored*>(io.out[k])[i] = value;
  }
}

template <class Stored, ReduceOp op>
void by_inputs(const Inputs& io) {
  switch (io.inputs) {
    case 2: return run<Stored, op, 2>(io);
    case 3: return run<Stored, op, 3>(io);
    case 4: return run<Stored, op, 4>(io);
  }
  run<Stored, op, 0>(io);
}

template <class Stored>
void by_op(const Inputs& io) {
  switch (io.op) {
    case ReduceOp::kSum: return by_inputs<Stored, ReduceOp::kSum>(io);
    case ReduceOp::kAvg: return by_inputs<Stored, ReduceOp::kAvg>(io);
    case ReduceOp::kProduct: return by_inputs<Stored, ReduceOp::kProduct>(io);
    case ReduceOp::kMin: return by_inputs<Stored, ReduceOp::kMin>(io);
    case ReduceOp::kMax: return by_inputs<Stored, ReduceOp::kMax>(io);
    case ReduceOp::kBand: return by_inputs<Stored, ReduceOp::kBand>(io);
    case ReduceOp::kBor: return by_inputs<Stored, ReduceOp::kBor>(io);
    case ReduceOp::kBxor: return by_inputs<Stored, ReduceOp::kBxor>(io);
  }
}

}  // namespace

void reduce(const Inputs& io) {
  switch (io.dtype) {
    case DType::kF32: return by_op<float>(io);
    case DType::kF64: return by_op<double>(io);
    case DType::kF16: return by_op<Half>(io);
    case DType::kBF16: return by_op<BFloat16>(io);
    case DType::kI8: return by_op<std::int8_t>(io);
    case DType::kU8: return by_op<std::uint8_t>(io);
    case DType::kI32: return by_op<std::int32_t>(io);
    case DType::kI64: return by_op<std::int64_t>(io);
    case DType::kBool: return by_op<std::uint8_t>(io);  // 0 or 1; reduce.cc has turned sum into bor, product into band
  }
}

}  // namespace tutti::kernels::TUTTI_ISA
