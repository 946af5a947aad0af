// In round k each rank signals the rank 2^k after it, once it has the signal of the round before. The signal is one
// byte: a token in scratch memory, so that the order of the rounds follows from the bytes like everything else.
#include "tutti/planning/collectives/algorithms.h"

namespace tutti {

Plan barrier_dissemination(const Shape& shape) {
  PlanBuilder plan(Algorithm::kDissemination);
  const Range token = plan.scratch(shape.size > 1 ? 1 : 0);
  for (int distance = 1; distance < shape.size; distance *= 2) {
    plan.send((shape.rank + distance) % shape.size, token);
    plan.recv((shape.rank + shape.size - distance) % shape.size, token);
  }
  return std::move(plan).build();
}

}  // namespace tutti
