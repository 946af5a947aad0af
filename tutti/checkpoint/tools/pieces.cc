#include "tutti/checkpoint/tools/pieces.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tutti/base/machine.h"
#include "tutti/base/mutex.h"
#include "tutti/base/thread.h"

namespace tutti {

// Trailing dimensions that fit belong to a piece as a whole; the dimension before them is cut; an index counts through
// those before that.
Status for_each_piece(const TensorBox& box, std::uint64_t most, const std::function<Status(const TensorBox&)>& act) {
  if (box.elements() == 0) return {};
  const std::size_t dimensions = box.extent.size();
  if (dimensions == 0) return act(box);
  std::uint64_t within = 1;
  std::size_t cut = dimensions - 1;
  while (cut > 0 && within * box.extent[cut] <= most) within *= box.extent[cut--];
  const std::uint64_t step = std::max<std::uint64_t>(1, most / within);
  TensorBox piece = box;
  for (std::size_t d = 0; d < cut; ++d) piece.extent[d] = 1;
  while (true) {
    for (std::uint64_t at = 0; at < box.extent[cut]; at += step) {
      piece.begin[cut] = box.begin[cut] + at;
      piece.extent[cut] = std::min(step, box.extent[cut] - at);
      TUTTI_TRY(act(piece));
    }
    std::size_t d = cut;
    while (d > 0 && ++piece.begin[d - 1] == box.begin[d - 1] + box.extent[d - 1]) {
      --d;
      piece.begin[d] = box.begin[d];
    }
    if (d == 0) return {};
  }
}

Status in_parallel(int most, std::size_t count, const std::function<Status(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  struct {
    Mutex mutex;
    Status first TUTTI_GUARDED_BY(mutex);
  } failure;
  const auto run = [&] {
    while (!failed) {
      const std::size_t number = next++;
      if (number >= count) return;
      Status done = work(number);
      if (done.ok()) continue;
      const MutexLock lock(failure.mutex);
      if (!failed.exchange(true)) failure.first = std::move(done);
    }
  };
  const std::size_t threads = std::min<std::size_t>({std::size_t(most), std::size_t(usable_cores()), count});
  std::vector<std::thread> others;
  while (others.size() + 1 < threads) {
    auto other = start_thread(run);
    if (!other.ok()) break;  // those that there are do the work
    others.push_back(*std::move(other));
  }
  run();
  for (std::thread& other : others) other.join();
  const MutexLock lock(failure.mutex);
  return std::move(failure.first);
}

struct SharedProgress::State {
  Mutex mutex;
  const std::uint64_t all;
  const BytesDone tell;
  std::uint64_t done TUTTI_GUARDED_BY(mutex) = 0;
};

SharedProgress::SharedProgress(std::uint64_t all, BytesDone tell)
    : state_(new State{.mutex = {}, .all = all, .tell = std::move(tell)}) {}
SharedProgress::~SharedProgress() = default;

void SharedProgress::add(std::uint64_t bytes) {
  const MutexLock lock(state_->mutex);
  state_->done += bytes;
  if (state_->tell) state_->tell(state_->done, state_->all);
}

}  // namespace tutti
