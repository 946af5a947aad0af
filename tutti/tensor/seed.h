#pragma once
// LibTorch's random numbers, seeded by where they are used.
//
//   tutti::seed_all(seed);                                            // then make the model: alike on every rank
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

// Seeds the default generators of LibTorch (of the CPU and of all GPUs) for this place: 2 us on a CPU. With the place
// left out, the numbers are those of torch.manual_seed(seed). Every thread of the process draws from them, so draw in
// one thread.
void seed_all(std::uint64_t seed, const RandomPlace& place = {});

// A generator of its own for the place, on the CPU: for what is drawn beside the default generator, as augmentation in
// a loader's threads. (Includers of ATen only: at::Generator is an incomplete type here.)
at::Generator generator_at(std::uint64_t seed, const RandomPlace& place);

// From here on LibTorch refuses operators that have no deterministic form, and LibTorch and its BLAS compute with
// `threads` threads (fix_compute_threads() in compute.h): how a sum is split over threads shows in its last bits. Runs
// with the same number of ranks and the same placement then have the same bits, because Tutti always adds in one order.
// The same bits on any number of processes: DataParallelOptions::logical_ranks.
void use_deterministic(int threads = 1);

}  // namespace tutti
