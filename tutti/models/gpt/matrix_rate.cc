#include "tutti/models/gpt/matrix_rate.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include "tutti/base/clock.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/tensor/matrix_product.h"

namespace tutti::gpt {

double matrix_flops_of_all(const Group& world, c10::ScalarType dtype) {
  constexpr std::int64_t kSize = 768;
  constexpr double kSeconds = 0.3;
  const at::NoGradGuard no_grad;
  const at::Tensor a = at::ones({kSize, kSize}, dtype), b = at::ones({kSize, kSize}, dtype), c = at::empty_like(a);
  add_matrix_product(c, a, b, 0);
  barrier(world);
  const auto begin = now();
  std::int64_t products = 0;
  do {
    add_matrix_product(c, a, b, 0);
    ++products;
  } while (seconds_since(begin) < kSeconds);
  const double mine = double(products) * 2 * kSize * kSize * kSize / seconds_since(begin);
  return world.size() > 1 ? all_reduce(world, mine, ReduceOp::kSum) : mine;
}

}  // namespace tutti::gpt
