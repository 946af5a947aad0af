#pragma once
// A kernel is compiled once for each instruction set (tutti_isa_kernel() in cmake/TuttiTargets.cmake), in the
// namespaces kernels::generic, kernels::avx2 and kernels::avx512. Its caller chooses once, for the widest that this CPU
// has:
//
//   #define TUTTI_LOOPS(isa) kernels::isa::kLoops
//   const auto& loops = TUTTI_FOR_THIS_CPU(TUTTI_LOOPS);

namespace tutti {

enum class Isa { kGeneric, kAvx2, kAvx512 };

inline bool cpu_has([[maybe_unused]] Isa isa) {
#ifdef __x86_64__
  if (isa == Isa::kAvx2) return __builtin_cpu_supports("avx2");
  if (isa == Isa::kAvx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
  return isa == Isa::kGeneric;
}

#ifdef __x86_64__
#define TUTTI_FOR_THIS_CPU(of) (cpu_has(Isa::kAvx512) ? of(avx512) : cpu_has(Isa::kAvx2) ? of(avx2) : of(generic))
#else
#define TUTTI_FOR_THIS_CPU(of) of(generic)
#endif

}  // namespace tutti
