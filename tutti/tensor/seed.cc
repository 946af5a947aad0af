#include "tutti/tensor/seed.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "tutti/base/error.h"

namespace tutti {

void seed_all(std::uint64_t seed, const RandomPlace& place) { at::manual_seed(seed_at(seed, place)); }

at::Generator generator_at(std::uint64_t seed, const RandomPlace& place) {
  return at::make_generator<at::CPUGeneratorImpl>(seed_at(seed, place));
}

void use_deterministic(int threads) {
  TUTTI_REQUIRE(threads > 0, "use_deterministic: ", threads, " threads; expected 1 or more");
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::set_num_threads(threads);
}

}  // namespace tutti
