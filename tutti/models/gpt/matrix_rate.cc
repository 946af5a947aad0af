#include "tutti/models/gpt/matrix_rate.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include "tutti/base/clock.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/tensor/matrix_product.h"

namespace tutti::gpt {
namespace {

// Square matrices to multiply.
struct Product {
  Product(std::int64_t of, const at::TensorOptions& options)
      : size(of), a(at::ones({size, size}, options)), b(at::ones_like(a)), c(at::empty_like(a)) {}
  void multiply() const {
    add_matrix_product(c, a, b, 0);
    (void)c[0][0].item();  // waits for a GPU
  }
  double seconds() const {
    const auto begin = now();
    multiply();
    return seconds_since(begin);
  }
  std::int64_t size;
  at::Tensor a, b, c;
};

// Of 768, or larger, where a product takes less than a millisecond: then a GPU has little to do.
Product long_enough(const at::TensorOptions& options) {
  constexpr std::int64_t kLargest = 8192;
  for (std::int64_t size = 768;; size *= 2) {
    Product product(size, options);
    product.multiply();
    if (product.seconds() >= 1e-3 || 2 * size > kLargest) return product;
  }
}

}  // namespace

double matrix_flops_of_all(const Group& world, c10::ScalarType dtype, c10::Device device) {
  constexpr double kSeconds = 0.3;
  const at::NoGradGuard no_grad;
  const Product product = long_enough(at::TensorOptions(device).dtype(dtype));
  barrier(world);
  const auto begin = now();
  std::int64_t products = 0;
  do {
    product.multiply();
    ++products;
  } while (seconds_since(begin) < kSeconds);
  const double size = double(product.size), mine = double(products) * 2 * size * size * size / seconds_since(begin);
  return world.size() > 1 ? all_reduce(world, mine, ReduceOp::kSum) : mine;
}

}  // namespace tutti::gpt
