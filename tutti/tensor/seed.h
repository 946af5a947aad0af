#pragma once
// LibTorch's random numbers, seeded by where they are used.
//
//   tutti::seed_all(seed);                                            // then make the model: the same on every rank
//   for (std::int64_t step = 1; ...; ++step) {
//     tutti::seed_all(seed, {.step = step, .replica = world.rank()}); // dropout: differs between ranks
//     ...                                                             // and is the same when step is done again
//   }
#include <cstdint>

#include "tutti/base/random.h"

namespace at {
struct Generator;
}

namespace tutti {

// Seeds the default generators of LibTorch (of the CPU and of all GPUs) for this place: 2 us on a CPU. Without a place,
// the numbers are those of torch.manual_seed(seed). All threads of the process share the generators, so draw in one
// thread.
void seed_all(std::uint64_t seed, const RandomPlace& place = {});

// A separate generator for the place, on the CPU: for draws that must not use the default generator, such as
// augmentation in a loader's threads. (Needs ATen: at::Generator is an incomplete type here.)
at::Generator generator_at(std::uint64_t seed, const RandomPlace& place);

// From here on LibTorch refuses operators that have no deterministic form, and LibTorch and its BLAS compute with
// `threads` threads (fix_compute_threads() in compute.h): how a sum is split over threads shows in its last bits. Runs
// with the same number of ranks and the same placement then have the same bits, because Tutti always adds in one order.
// Sets CUBLAS_WORKSPACE_CONFIG, which LibTorch asks for on GPUs, unless it is set; call it before the first operator.
// The same bits on any number of processes: DataParallelOptions::logical_ranks.
void use_deterministic(int threads = 1);

}  // namespace tutti
