#pragma once
// The order of samples in a packed file, changed in bounded memory.
#include <cstdint>
#include <functional>
#include <string>

#include "tutti/base/random.h"
#include "tutti/data/clicks/packed_writer.h"

namespace tutti {

enum class Randomize { kNone, kDay, kTotal };

struct ShuffleOptions {
  Randomize randomize = Randomize::kTotal;  // kDay: within each day; kTotal: over all days but the last
  std::uint64_t memory = std::uint64_t(1) << 30;
  int threads = 1;
  std::string scratch_path;                                    // of a temporary file, as large as the samples
  std::function<void(double share)> progress = [](double) {};  // by one thread at a time
};

// Appends the samples of `from` (a file of blocks, described by `header`) to `to`, shuffled; the last day, which is for
// tests, keeps its order. The order is that of dlrm_s_pytorch.py without --memory-map, numpy's permutation drawn from
// `random`, one for each day or one for all: the i-th sample of the result is sample permutation[i]. Where eight bytes
// a sample do not fit into the memory, the samples are dealt to buckets at random instead, and each bucket is permuted.
Status shuffle_samples(const PlacedFile& from, const PackedHeader& header, PackedWriter& to, NumpyRandom& random,
                       const ShuffleOptions& options);

}  // namespace tutti
