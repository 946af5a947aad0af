#pragma once
// Relaxes the CPU between two reads of memory that another core is about to write.

namespace tutti {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tutti
