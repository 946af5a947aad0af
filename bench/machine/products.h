#pragma once
// Products of matrices, by the libraries with which LibTorch multiplies on this machine.
#include <cstddef>
#include <string>

#include "tutti/base/error.h"
#include "tutti/planning/training/cluster.h"

namespace tutti::bench {

// The system's BLAS, which Debian's LibTorch calls. With AVX-512 also oneDNN, for the products for which
// parallel/tensor/matrix_product.cc calls it. Both are loaded when they are asked for, so no program links them. They
// read the number of threads from the environment (OMP_NUM_THREADS), which tutti run sets for each rank.
class ProductLibrary {
 public:
  // kNotFound: there is no BLAS here.
  static Result<ProductLibrary> load();

  // "OpenBLAS (Haswell), /usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3"
  const std::string& name() const { return name_; }
  // The reference BLAS, which is 13 to 60 times slower than OpenBLAS.
  bool is_slow() const { return is_slow_; }

  // out = the product of a linear layer with m rows, n outputs and k inputs; all matrices are packed, rows first.
  //   kForward         out[m, n] = a[m, k] b[n, k]^T
  //   kInputGradient   out[m, k] = a[m, n] b[n, k]
  //   kWeightGradient  out[n, k] = a[m, n]^T b[m, k]
  void multiply(ProductKind kind, int m, int n, int k, const float* a, const float* b, float* out) const;

 private:
  using Blas = void (*)(const char* a_transposed, const char* b_transposed, const int* m, const int* n, const int* k,
                        const float* alpha, const float* a, const int* a_stride, const float* b, const int* b_stride,
                        const float* beta, float* c, const int* c_stride);
  using OneDnn = int (*)(char a_transposed, char b_transposed, std::int64_t m, std::int64_t n, std::int64_t k,
                         float alpha, const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride,
                         float beta, float* c, std::int64_t c_stride);

  Blas blas_ = nullptr;
  OneDnn onednn_ = nullptr;
  std::string name_;
  bool is_slow_ = false;
};

// Elements of the two operands and of the result.
struct ProductSizes {
  std::size_t a, b, out;
};
ProductSizes sizes_of(ProductKind kind, int m, int n, int k);

}  // namespace tutti::bench
