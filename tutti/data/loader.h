#pragma once
// Batches made ahead of time by threads, in an order that depends on the sampler alone.
//
//   tutti::Loader loader(tutti::BatchSampler(world, {.dataset_size = data.size(), .batch_size = 64, .seed = seed}),
//                        [&](const std::vector<std::int64_t>& samples) { return data.batch(samples); });
//   while (auto batch = loader.next()) train(*batch);       // and loader.state() goes into the checkpoint
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/clock.h"

namespace tutti {

struct LoaderOptions {
  // That make batches, each one at a time. 0: next() makes them itself, when asked.
  int threads = 1;
  // Batches that are ready or being made while the program works on one; with threads, 1 or more.
  int ahead = 2;
  // How long next() waits for a batch. Then it throws an Exception (kTimeout) that names its samples.
  Duration patience = std::chrono::minutes(10);
};

// The threads and the queue of a Loader, which do not depend on what a batch is. One thread at a time calls it.
class Prefetcher {
 public:
  using Samples = std::vector<std::int64_t>;
  using Draw = std::function<Samples()>;                              // the next samples; none: there are no more
  using Make = std::function<std::shared_ptr<void>(const Samples&)>;  // by several threads at once

  struct Made {  // a batch, or what make() threw for it
    std::shared_ptr<void> batch;
    std::exception_ptr failure;
  };

  // Throws Exception for options that cannot be.
  Prefetcher(Draw draw, Make make, const LoaderOptions& options);
  ~Prefetcher();  // as forget()
  Prefetcher(const Prefetcher&) = delete;

  // The next batch in the order of draw(); none after the last. Throws Exception (kTimeout) where it does not come in
  // time: then it is still the next one.
  std::optional<Made> next();
  // Forgets what was drawn ahead. Waits for the batches that are being made, and says so in the log if that takes long.
  void forget();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Sampler: take() gives the samples of the next batch, none at the end; state() and restore() are its place (a
// BatchSampler; or EpochBatches over a DistributedSampler). Batch: what `make` returns, movable.
//
// `make` runs on the loader's threads and must give the same batch for the same samples: draw random numbers by sample
// index and epoch, not by thread. What it throws comes out of the next() whose batch it was, which is passed over by
// that. One thread at a time uses the Loader.
template <class Sampler, class Make>
class Loader {
 public:
  using Samples = Prefetcher::Samples;
  using Batch = std::invoke_result_t<Make&, const Samples&>;
  using State = std::decay_t<decltype(std::declval<const Sampler&>().state())>;

  Loader(Sampler sampler, Make make, const LoaderOptions& options = {})
      : sampler_(std::move(sampler)),
        state_(sampler_.state()),
        prefetcher_(
            [this] {
              auto samples = sampler_.take();
              if (!samples.empty()) drawn_.push_back(sampler_.state());
              return samples;
            },
            [make = std::move(make)](const Samples& samples) mutable -> std::shared_ptr<void> {
              return std::make_shared<Batch>(make(samples));
            },
            options) {}
  Loader(const Loader&) = delete;  // its threads hold its address

  // The next batch; none once the sampler has no more: then restore() or set_epoch() goes on.
  std::optional<Batch> next() {
    const auto made = prefetcher_.next();
    if (!made) return std::nullopt;
    state_ = drawn_.front();
    drawn_.pop_front();
    if (made->failure) std::rethrow_exception(made->failure);
    return std::move(*static_cast<Batch*>(made->batch.get()));
  }

  // Where the sampler stood after the batch that next() gave last, whatever is made ahead: a run that restores it gets
  // the batches that this one would have got.
  const State& state() const { return state_; }
  void restore(const State& state) {
    prefetcher_.forget();
    drawn_.clear();
    sampler_.restore(state);
    state_ = sampler_.state();
  }
  // For a Sampler that has set_epoch().
  void set_epoch(std::int64_t epoch) {
    prefetcher_.forget();
    drawn_.clear();
    sampler_.set_epoch(epoch);
    state_ = sampler_.state();
  }

 private:
  Sampler sampler_;
  State state_;
  std::deque<State> drawn_;  // after each batch that was drawn, and not given yet
  Prefetcher prefetcher_;
};

}  // namespace tutti
