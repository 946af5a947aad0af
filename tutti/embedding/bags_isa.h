#pragma once
// What bags.cc hands to the loops of one instruction set (bags_impl.h).
#include "tutti/embedding/bags.h"

namespace tutti::kernels {

#define TUTTI_DECLARE_BAGS(isa)                \
  namespace isa {                              \
  std::int64_t pool(const Bags<float>& bags);  \
  std::int64_t pool(const Bags<double>& bags); \
  void step_rows(const RowStep<float>& step);  \
  void step_rows(const RowStep<double>& step); \
  }
TUTTI_DECLARE_BAGS(generic)
TUTTI_DECLARE_BAGS(avx2)
TUTTI_DECLARE_BAGS(avx512)
#undef TUTTI_DECLARE_BAGS

}  // namespace tutti::kernels
