// The calling thread draws samples in order, and each batch gets its place in a queue. A thread takes the first place
// that no other thread works on, and the caller waits for the first place. So neither the number of threads nor their
// speed changes the result.
#include "tutti/data/loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <condition_variable>
#include <span>
#include <thread>

#include "tutti/base/deadline.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/mutex.h"
#include "tutti/base/thread.h"

namespace tutti {
namespace {

constexpr Duration kLongWait = std::chrono::seconds(5);  // before forget() logs what it waits for

enum class BatchProgress { kWaiting, kBeingMade, kReady };

struct LoaderPlace {
  std::uint64_t number;  // of the batch, from 0
  Prefetcher::Samples samples;
  BatchProgress progress = BatchProgress::kWaiting;
  Clock::time_point begun;
  Prefetcher::Made made;
};

std::string text(const LoaderPlace& place) {
  const std::size_t shown = std::min<std::size_t>(place.samples.size(), 3);
  std::string samples = fmt::format("{}", fmt::join(std::span(place.samples).first(shown), ", "));
  if (shown < place.samples.size()) samples += fmt::format(" and {} more", place.samples.size() - shown);
  return fmt::format("batch {} of a loader (samples {})", place.number, samples);
}

void make_it(LoaderPlace& place, const Prefetcher::Make& make) {
  try {
    place.made.batch = make(place.samples);
  } catch (...) {
    place.made.failure = std::current_exception();
  }
}

}  // namespace

struct Prefetcher::State {
  Draw draw;
  Make make;
  LoaderOptions options;
  std::uint64_t next_number = 0;
  Mutex mutex;
  std::condition_variable_any work, done;
  std::deque<std::shared_ptr<LoaderPlace>> places TUTTI_GUARDED_BY(mutex);  // in order
  bool ending TUTTI_GUARDED_BY(mutex) = false;
  std::vector<std::thread> threads;

  ~State() {
    {
      const MutexLock lock(mutex);
      ending = true;
      work.notify_all();
    }
    for (auto& thread : threads) thread.join();
  }

  void run() {
    MutexLock lock(mutex);
    for (;;) {
      const auto first = std::find_if(places.begin(), places.end(),
                                      [](const auto& place) { return place->progress == BatchProgress::kWaiting; });
      if (ending) return;
      if (first == places.end()) {
        work.wait(lock);
        continue;
      }
      const auto place = *first;
      place->progress = BatchProgress::kBeingMade;
      place->begun = now();
      lock.unlock();
      make_it(*place, make);
      lock.lock();
      place->progress = BatchProgress::kReady;
      done.notify_all();
    }
  }

  void draw_ahead(std::size_t count) {
    MutexLock lock(mutex);
    while (places.size() < count) {
      lock.unlock();
      auto samples = draw();
      lock.lock();
      if (samples.empty()) return;
      places.push_back(
          std::make_shared<LoaderPlace>(LoaderPlace{.number = next_number++, .samples = std::move(samples)}));
      work.notify_one();
    }
  }

  std::shared_ptr<LoaderPlace> first() {
    const MutexLock lock(mutex);
    return places.empty() ? nullptr : places.front();
  }

  std::shared_ptr<LoaderPlace> wait_for_first() {
    MutexLock lock(mutex);
    const auto place = places.front();
    const auto deadline = Deadline::after(options.patience);
    while (place->progress != BatchProgress::kReady) {
      if (done.wait_until(lock, deadline.at()) == std::cv_status::timeout && place->progress != BatchProgress::kReady) {
        throw Exception(deadline.error(
            text(*place) + (place->progress == BatchProgress::kWaiting
                                ? " has not begun"
                                : fmt::format(" began {:.1f} s ago and is not ready", seconds_since(place->begun))),
            "check what prepares the batch (a file system that hangs, a lock), or increase LoaderOptions::patience"));
      }
    }
    return place;
  }

  void let_go_of_first() {
    const MutexLock lock(mutex);
    places.pop_front();
  }
};

Prefetcher::Prefetcher(Draw draw, Make make, const LoaderOptions& options) : state_(std::make_unique<State>()) {
  TUTTI_REQUIRE(options.threads >= 0, "Loader: ", options.threads, " threads; expected 0 or more");
  TUTTI_REQUIRE(options.threads == 0 || options.ahead > 0, "Loader: ", options.ahead,
                " batches ahead; expected 1 or more");
  state_->draw = std::move(draw);
  state_->make = std::move(make);
  state_->options = options;
  for (int i = 0; i < options.threads; ++i) {
    auto thread = start_thread([state = state_.get()] { state->run(); });
    if (!thread.ok()) {
      Error error = thread.error();
      error.detail = fmt::format("Loader: cannot start thread {} of {}", i + 1, options.threads);
      throw Exception(std::move(error));
    }
    state_->threads.push_back(*std::move(thread));
  }
}

Prefetcher::~Prefetcher() { forget(); }

std::optional<Prefetcher::Made> Prefetcher::next() {
  State& state = *state_;
  const bool here = state.options.threads == 0;
  const std::size_t ahead = here ? 1 : std::size_t(state.options.ahead);
  state.draw_ahead(ahead);
  const auto first = state.first();
  if (!first) return std::nullopt;
  if (here) {
    make_it(*first, state.make);
    first->progress = BatchProgress::kReady;
  }
  const auto place = state.wait_for_first();
  // For the threads, while the program works on this batch. If the sampler throws, this batch remains the next one.
  if (!here) state.draw_ahead(ahead + 1);
  state.let_go_of_first();
  return std::move(place->made);
}

void Prefetcher::forget() {
  State& state = *state_;
  MutexLock lock(state.mutex);
  std::erase_if(state.places, [](const auto& place) { return place->progress != BatchProgress::kBeingMade; });
  const auto is_late = [](const auto& place) { return place->progress != BatchProgress::kReady; };
  while (true) {
    const auto late = std::find_if(state.places.begin(), state.places.end(), is_late);
    if (late == state.places.end()) break;
    if (state.done.wait_for(lock, kLongWait) == std::cv_status::no_timeout) continue;
    log::warn(fmt::format("waiting for {}, which is no longer needed but has been in preparation for {:.1f} s",
                          text(**late), seconds_since((*late)->begun)));
  }
  state.places.clear();
}

}  // namespace tutti
