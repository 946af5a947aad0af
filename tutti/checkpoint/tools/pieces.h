#pragma once
// A box cut into pieces that lie one after another in its bytes, so that a tensor of any size passes through a small
// buffer.
#include <cstdint>
#include <functional>
#include <memory>

#include "tutti/base/error.h"
#include "tutti/checkpoint/format/box.h"

namespace tutti {

inline constexpr std::uint64_t kPieceBytes = std::uint64_t(1) << 20;

// Pieces of at most `most` elements (at least one), in the order of their bytes. Stops at the first error.
Status for_each_piece(const TensorBox& box, std::uint64_t most, const std::function<Status(const TensorBox&)>& act);

// How many bytes of how many are done. Called by one thread at a time.
using BytesDone = std::function<void(std::uint64_t done, std::uint64_t all)>;

// Calls work(0) ... work(count - 1), each once, on as many threads as there are cores to use, but not more than `most`;
// returns the first error there was, after which nothing is begun.
Status in_parallel(int most, std::size_t count, const std::function<Status(std::size_t)>& work);

// Adds up what several threads have done, and tells.
class SharedProgress {
 public:
  SharedProgress(std::uint64_t all, BytesDone tell);
  ~SharedProgress();
  void add(std::uint64_t bytes);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace tutti
