// LibTorch multiplies f32 with the system's BLAS, on Debian OpenBLAS, and convolves with oneDNN, which has a
// dnnl_sgemm, too. With AVX-512 that one is 5 to 20 % faster for a layer's output and its input's gradient, 15 to 30 %
// for the tiles of attention. It is slower, up to 2 times, where the first matrix is transposed and wide, as in the
// gradient of a wide weight: it reads that one in columns, a page or more apart. docs/reference/benchmarks.md has the
// figures. A LibTorch with MKL, as in the Python wheels, is left alone, and so is a CPU without AVX-512, where nothing
// was measured.
//
// Which library multiplies depends on shapes and strides alone, so equal calls on as many threads give equal bits.
#include "tutti/parallel/tensor/matrix_product.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <cstdint>
#include <optional>

#include "tutti/base/cpu_dispatch.h"
#include "tutti/base/error.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {
namespace {

// oneDNN's C interface (dnnl.h), rows first: c[m, n] = alpha a[m, k] b[k, n] + beta c.
using Sgemm = int (*)(char a_transposed, char b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                      const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float beta,
                      float* c, std::int64_t c_stride);

Sgemm onednn() {
  static const Sgemm found = []() -> Sgemm {
    if (!at::hasMKL() && cpu_has(Isa::kAvx512))  // measured there
      return reinterpret_cast<Sgemm>(dlsym(RTLD_DEFAULT, "dnnl_sgemm"));
    return nullptr;
  }();
  return found;
}

// As a BLAS takes a matrix: packed in one of its dimensions, `stride` elements from one row (transposed: column) to the
// next.
struct Operand {
  float* data;
  std::int64_t stride;
  char transposed;
};
std::optional<Operand> operand(const at::Tensor& matrix) {
  const bool plain = matrix.layout() == at::kStrided && matrix.is_cpu() && !matrix.is_neg();
  if (matrix.scalar_type() != at::kFloat || !plain || matrix.numel() == 0) return std::nullopt;
  if (matrix.stride(1) == 1 && matrix.stride(0) >= matrix.size(1))
    return Operand{matrix.data_ptr<float>(), matrix.stride(0), 'N'};
  if (matrix.stride(0) == 1 && matrix.stride(1) >= matrix.size(0))
    return Operand{matrix.data_ptr<float>(), matrix.stride(1), 'T'};
  return std::nullopt;
}

bool by_onednn(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, double beta, double alpha) {
  constexpr std::int64_t kWidestTransposed = 512;  // floats: half a page
  if (!onednn()) return false;
  const auto first = operand(a), second = operand(b), result = operand(out);
  if (!first || !second || !result || result->transposed == 'T') return false;
  if (first->transposed == 'T' && first->stride > kWidestTransposed) return false;
  at::get_num_threads();    // a thread's first call sets the number that at::set_num_threads() asked for
  constexpr int kDone = 0;  // dnnl_success
  return onednn()(first->transposed, second->transposed, a.size(0), b.size(1), a.size(1), float(alpha), first->data,
                  first->stride, second->data, second->stride, float(beta), result->data, result->stride) == kDone;
}

void require_matrices(const at::Tensor& a, const at::Tensor& b) {
  TUTTI_REQUIRE(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0), "a product of ", describe(a), " and ",
                describe(b), ", expected [n, k] and [k, m]");
}

}  // namespace

void add_matrix_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, double beta, double alpha) {
  require_matrices(a, b);
  TUTTI_REQUIRE(out.dim() == 2 && out.size(0) == a.size(0) && out.size(1) == b.size(1), "a product of ", describe(a),
                " and ", describe(b), " into ", describe(out));
  if (by_onednn(out, a, b, beta, alpha)) return;
  at::Tensor sum = out;
  at::addmm_out(sum, out, a, b, beta, alpha);
}

at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b) {
  require_matrices(a, b);
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  if (!by_onednn(out, a, b, 0, 1)) at::mm_out(out, a, b);
  return out;
}

}  // namespace tutti
