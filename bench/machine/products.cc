#include "bench/machine/products.h"

#include <dlfcn.h>

#include <climits>
#include <cstdlib>
#include <memory>

#include "tutti/base/cpu_dispatch.h"
#include "tutti/launch/tuning.h"

namespace tutti::bench {
namespace {

// The file in which a function is, without links.
std::string file_of(void* function) {
  Dl_info info{};
  if (!::dladdr(function, &info) || !info.dli_fname) return "a file without a name";
  const std::unique_ptr<char, void (*)(void*)> path(::realpath(info.dli_fname, nullptr), std::free);
  return path ? path.get() : info.dli_fname;
}

}  // namespace

Result<ProductLibrary> ProductLibrary::load() {
  ProductLibrary library;
  void* handle = nullptr;
  for (const char* name : {"libblas.so.3", "libopenblas.so.0", "libopenblas.so"})
    if (handle == nullptr) handle = ::dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  void* const sgemm = handle ? ::dlsym(handle, "sgemm_") : nullptr;
  if (sgemm == nullptr)
    return Error{.code = Code::kNotFound,
                 .detail = "there is no BLAS here (libblas.so.3 or libopenblas.so.0), and so no product to measure",
                 .hint = "install it: apt-get install libopenblas0-pthread"};
  library.blas_ = reinterpret_cast<Blas>(sgemm);
  const std::string file = file_of(sgemm), core = launch::loaded_openblas_core();
  library.name_ = core.empty() ? file : "OpenBLAS (" + core + "), " + file;
  const bool other = file.find("mkl") != file.npos || file.find("blis") != file.npos || file.find("atlas") != file.npos;
  library.is_slow_ = core.empty() && !other;
  if (!cpu_has(Isa::kAvx512) || file.find("mkl") != file.npos) return library;
  for (const char* name : {"libdnnl.so.2", "libdnnl.so.3"}) {
    void* const onednn = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    void* const product = onednn ? ::dlsym(onednn, "dnnl_sgemm") : nullptr;
    if (product == nullptr) continue;
    library.onednn_ = reinterpret_cast<OneDnn>(product);
    library.name_ += ", and oneDNN, " + file_of(product);
    break;
  }
  return library;
}

void ProductLibrary::multiply(ProductKind kind, int m, int n, int k, const float* a, const float* b, float* out) const {
  constexpr int kWidestTransposed = 512;  // as in parallel/tensor/matrix_product.cc
  constexpr float kOne = 1, kZero = 0;
  const bool by_onednn = onednn_ && (kind != ProductKind::kWeightGradient || n <= kWidestTransposed);
  // BLAS has columns first, so it sees every matrix transposed, and computes out^T = b' a'.
  switch (kind) {
    case ProductKind::kForward:
      if (by_onednn)
        onednn_('N', 'T', m, n, k, 1, a, k, b, k, 0, out, n);
      else
        blas_("T", "N", &n, &m, &k, &kOne, b, &k, a, &k, &kZero, out, &n);
      return;
    case ProductKind::kInputGradient:
      if (by_onednn)
        onednn_('N', 'N', m, k, n, 1, a, n, b, k, 0, out, k);
      else
        blas_("N", "N", &k, &m, &n, &kOne, b, &k, a, &n, &kZero, out, &k);
      return;
    case ProductKind::kWeightGradient:
      if (by_onednn)
        onednn_('T', 'N', n, k, m, 1, a, n, b, k, 0, out, k);
      else
        blas_("N", "T", &k, &n, &m, &kOne, b, &k, a, &n, &kZero, out, &k);
      return;
  }
}

ProductSizes sizes_of(ProductKind kind, int m, int n, int k) {
  const std::size_t mn = std::size_t(m) * std::size_t(n), mk = std::size_t(m) * std::size_t(k),
                    nk = std::size_t(n) * std::size_t(k);
  switch (kind) {
    case ProductKind::kForward:
      return {mk, nk, mn};
    case ProductKind::kInputGradient:
      return {mn, nk, mk};
    case ProductKind::kWeightGradient:
      return {mn, mk, nk};
  }
  return {};
}

}  // namespace tutti::bench
