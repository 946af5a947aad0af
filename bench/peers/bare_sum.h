#pragma once
// The sum of an all_reduce in shared memory with nothing around it, as wide as the processor has it: what `tutti bench`
// and bench/paired_all_reduce measure the direct path against.
#include <cstddef>

namespace bare {

typedef float Vector __attribute__((vector_size(64), aligned(64), may_alias));

// vectors[r], 64-byte aligned, each become the sum of all, in rank order; begin and end in elements, multiples of 16.
inline __attribute__((always_inline)) void sum_body(float* const* vectors, int ranks, std::size_t begin,
                                                    std::size_t end) {
  if (ranks == 2) {
    float *const a = vectors[0], *const b = vectors[1];
    for (std::size_t i = begin; i < end; i += 16) {
      const Vector sum = *reinterpret_cast<Vector*>(a + i) + *reinterpret_cast<Vector*>(b + i);
      *reinterpret_cast<Vector*>(a + i) = sum;
      *reinterpret_cast<Vector*>(b + i) = sum;
    }
    return;
  }
  for (std::size_t i = begin; i < end; i += 16) {
    Vector sum = *reinterpret_cast<Vector*>(vectors[0] + i);
    for (int r = 1; r < ranks; ++r) sum += *reinterpret_cast<Vector*>(vectors[r] + i);
    for (int r = 0; r < ranks; ++r) *reinterpret_cast<Vector*>(vectors[r] + i) = sum;
  }
}

using Sum = void(float* const*, int, std::size_t, std::size_t);
inline void sum_plain(float* const* v, int n, std::size_t begin, std::size_t end) { sum_body(v, n, begin, end); }
#if defined(__x86_64__)
__attribute__((target("avx2"))) inline void sum_avx2(float* const* v, int n, std::size_t begin, std::size_t end) {
  sum_body(v, n, begin, end);
}
__attribute__((target("avx512f"))) inline void sum_avx512(float* const* v, int n, std::size_t begin, std::size_t end) {
  sum_body(v, n, begin, end);
}
inline Sum* widest_sum() {
  return __builtin_cpu_supports("avx512f") ? sum_avx512 : __builtin_cpu_supports("avx2") ? sum_avx2 : sum_plain;
}
#else
inline Sum* widest_sum() { return sum_plain; }
#endif

}  // namespace bare
