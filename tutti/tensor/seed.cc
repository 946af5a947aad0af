#include "tutti/tensor/seed.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <cstdlib>

#include "tutti/tensor/compute.h"

namespace tutti {

void seed_all(std::uint64_t seed, const RandomPlace& place) { at::manual_seed(seed_at(seed, place)); }

at::Generator generator_at(std::uint64_t seed, const RandomPlace& place) {
  return at::make_generator<at::CPUGeneratorImpl>(seed_at(seed, place));
}

void use_deterministic(int threads) {
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // else LibTorch refuses products on a GPU
  fix_compute_threads(threads);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
}

}  // namespace tutti
