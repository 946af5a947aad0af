#pragma once
// Batches that threads prepare in advance, in an order that depends only on the sampler.
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
  // Threads that prepare batches, each one batch at a time. 0: next() prepares each batch itself.
  int threads = 1;
  // Batches that are ready or in preparation while the program works on one. With threads: at least 1.
  int ahead = 2;
  // How long next() waits for a batch. Then it throws Exception (kTimeout), which names the batch's samples.
  Duration patience = std::chrono::minutes(10);
};

// The threads and the queue of a Loader; independent of the batch type. Threads: one at a time.
class Prefetcher {
 public:
  using Samples = std::vector<std::int64_t>;
  using Draw = std::function<Samples()>;                              // the next samples; empty at the end
  using Make = std::function<std::shared_ptr<void>(const Samples&)>;  // called by several threads at once

  struct Made {  // a batch, or the exception that make() threw for it
    std::shared_ptr<void> batch;
    std::exception_ptr failure;
  };

  // Throws Exception for invalid options.
  Prefetcher(Draw draw, Make make, const LoaderOptions& options);
  ~Prefetcher();  // like forget()
  Prefetcher(const Prefetcher&) = delete;

  // Returns the next batch in the order of draw(), or none after the last one. Throws Exception (kTimeout) if the batch
  // is not ready in time; it then remains the next batch.
  std::optional<Made> next();
  // Discards the batches drawn in advance. Waits for those in preparation, and logs a message if that takes long.
  void forget();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Sampler: take() returns the samples of the next batch, none at the end; state() and restore() are its position (a
// BatchSampler, or EpochBatches over a DistributedSampler). Batch: the return type of `make`; must be movable.
//
// `make` runs on the loader's threads and must return the same batch for the same samples. So draw random numbers by
// sample index and epoch, not by thread. If `make` throws, the next() of that batch throws the exception and skips the
// batch. Threads: one at a time may use the Loader.
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

  // The next batch, or none at the end of the sampler. restore() or set_epoch() then starts again.
  std::optional<Batch> next() {
    const auto made = prefetcher_.next();
    if (!made) return std::nullopt;
    state_ = drawn_.front();
    drawn_.pop_front();
    if (made->failure) std::rethrow_exception(made->failure);
    return std::move(*static_cast<Batch*>(made->batch.get()));
  }

  // The sampler's state after the last batch that next() returned, regardless of batches prepared in advance. A run
  // that restores it gets the same batches that this run would get next.
  const State& state() const { return state_; }
  void restore(const State& state) {
    prefetcher_.forget();
    drawn_.clear();
    sampler_.restore(state);
    state_ = sampler_.state();
  }
  // Requires a Sampler with set_epoch().
  void set_epoch(std::int64_t epoch) {
    prefetcher_.forget();
    drawn_.clear();
    sampler_.set_epoch(epoch);
    state_ = sampler_.state();
  }

 private:
  Sampler sampler_;
  State state_;
  std::deque<State> drawn_;  // the state after each batch that is drawn but not yet returned
  Prefetcher prefetcher_;
};

}  // namespace tutti
