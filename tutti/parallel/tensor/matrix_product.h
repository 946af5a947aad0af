#pragma once
// Products of matrices, by the faster of two libraries that LibTorch has loaded anyway (matrix_product.cc says which).
// Autograd records nothing of them: they are for the inside of its nodes.
#include <ATen/core/Tensor.h>

namespace tutti {

// a b: [n, k] times [k, m], of one type; a packed [n, m] of that type. Any strides.
at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b);

// out = alpha a b + beta out, in place; with beta 0 nothing of `out` is read. `out`: [n, m], any strides, no memory of
// a or b.
void add_matrix_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, double beta = 1,
                        double alpha = 1);

}  // namespace tutti
