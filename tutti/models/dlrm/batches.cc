// Ahead of the trainer a thread may read; it goes through the same steps in the same order, so what is read does not
// depend on it. Buffers go round between the two, so that no step allocates.
#include "tutti/models/dlrm/batches.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <thread>

#include "tutti/base/mutex.h"
#include "tutti/base/thread.h"

namespace tutti::dlrm {

std::vector<LookupsView> StepBatch::views() const {
  std::vector<LookupsView> views;
  for (const auto& table : lookups) views.push_back({table.offsets, table.indices});
  return views;
}

void divide_lookups(const Lookups& all, std::int64_t collisions, Lookups& quotients, Lookups& remainders) {
  quotients.offsets = remainders.offsets = all.offsets;
  quotients.indices.resize(all.indices.size());
  remainders.indices.resize(all.indices.size());
  for (std::size_t i = 0; i < all.indices.size(); ++i) {
    quotients.indices[i] = all.indices[i] / collisions;
    remainders.indices[i] = all.indices[i] % collisions;
  }
}

// Steps that were read, and buffers to read into. The reading thread and the trainer both touch it.
struct BatchReader::Ahead {
  Mutex mutex;
  std::condition_variable_any changed;
  std::deque<StepBatch> ready TUTTI_GUARDED_BY(mutex), spare TUTTI_GUARDED_BY(mutex);
  std::exception_ptr failure TUTTI_GUARDED_BY(mutex);  // told after what is ready
  bool stop TUTTI_GUARDED_BY(mutex) = false;
  std::thread thread;
};

BatchReader::BatchReader(ClickSource& source, const Architecture& architecture, Reading reading)
    : source_(source), architecture_(architecture), reading_(std::move(reading)) {
  batches_ = reading_.batches > 0 ? std::min(reading_.batches, source.batches()) : source.batches();
  for (std::size_t i = 0; i < architecture_.features.size(); ++i) {
    const auto& feature = architecture_.features[i];
    const auto mine = [&](std::size_t table) {
      return std::count(reading_.my_tables.begin(), reading_.my_tables.end(), table) > 0;
    };
    const bool divided = feature.kind == FeatureKind::kQuotientRemainder;
    if (mine(feature.table) || (divided && mine(feature.table + 1))) columns_.push_back(int(i));
  }
  start();
}

BatchReader::~BatchReader() { stop(); }

std::int64_t BatchReader::after(std::int64_t first) const {
  return first + reading_.accumulate < batches_ ? first + reading_.accumulate : 0;
}

void BatchReader::stop() {
  if (!ahead_) return;
  {
    const MutexLock lock(ahead_->mutex);
    ahead_->stop = true;
  }
  ahead_->changed.notify_all();
  ahead_->thread.join();
  ahead_.reset();
}

void BatchReader::seek(std::int64_t batch, std::optional<std::int64_t> epoch) {
  if (ahead_ && batch == next_ && epoch.value_or(epoch_) == epoch_) return;  // what was read ahead stays good
  stop();
  next_ = batch;
  epoch_ = epoch.value_or(epoch_);
  start();
}

void BatchReader::start() {
  source_.set_epoch(epoch_);
  if (reading_.ahead == 0 || batches_ == 0) return;
  ahead_ = std::make_unique<Ahead>();
  {
    const MutexLock lock(ahead_->mutex);
    ahead_->spare.resize(std::size_t(reading_.ahead));
  }
  auto started = start_thread([this, first = next_, epoch = epoch_]() mutable {
    auto& a = *ahead_;
    MutexLock lock(a.mutex);
    while (true) {
      while (!a.stop && a.spare.empty()) a.changed.wait(lock);
      if (a.stop) return;
      auto step = std::move(a.spare.front());
      a.spare.pop_front();
      lock.unlock();
      std::exception_ptr failure;
      try {
        read(first, step);
        first = after(first);
        if (first == 0) source_.set_epoch(++epoch);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure) {
        a.failure = failure;
        a.changed.notify_all();
        return;
      }
      a.ready.push_back(std::move(step));
      a.changed.notify_all();
    }
  });
  if (started.ok()) {
    ahead_->thread = *std::move(started);
  } else {
    ahead_.reset();
    started.status().or_throw();
  }
}

const StepBatch& BatchReader::next() {
  if (!ahead_ && reading_.ahead > 0) start();
  if (!ahead_) {
    read(next_, current_);
  } else {
    auto& a = *ahead_;
    MutexLock lock(a.mutex);
    while (a.ready.empty() && !a.failure) a.changed.wait(lock);
    if (a.ready.empty()) std::rethrow_exception(a.failure);
    std::swap(current_, a.ready.front());
    a.spare.push_back(std::move(a.ready.front()));
    a.ready.pop_front();
    a.changed.notify_all();
  }
  next_ = after(next_);
  if (next_ == 0) {
    ++epoch_;
    if (!ahead_) source_.set_epoch(epoch_);
  }
  return current_;
}

namespace {

void append(Lookups& to, const Lookups& from) {
  const auto base = std::int64_t(to.indices.size());
  if (to.offsets.empty()) to.offsets.push_back(0);
  for (std::size_t i = 1; i < from.offsets.size(); ++i) to.offsets.push_back(base + from.offsets[i]);
  to.indices.insert(to.indices.end(), from.indices.begin(), from.indices.end());
}

}  // namespace

void BatchReader::read(std::int64_t first, StepBatch& into) {
  into.first = first;
  into.sizes.clear();
  into.samples = 0;
  const auto end = std::min(first + reading_.accumulate, batches_);
  for (auto batch = first; batch < end; ++batch) into.sizes.push_back(source_.samples(batch));
  for (auto size : into.sizes) into.samples += size;
  into.mine = my_slice(into.samples, reading_.rank, reading_.ranks);
  into.dense.clear();
  into.targets.clear();
  into.lookups.resize(architecture_.tables.size());
  std::vector<Lookups> columns(columns_.size());
  std::int64_t before = 0;
  for (auto batch = first; batch < end; ++batch) {
    const auto size = into.sizes[std::size_t(batch - first)];
    BatchPart part{.begin = std::clamp<std::int64_t>(into.mine.begin - before, 0, size),
                   .end = std::clamp<std::int64_t>(into.mine.end - before, 0, size),
                   .tables = columns_};
    source_.read(batch, part, raw_).or_throw();
    into.dense.insert(into.dense.end(), raw_.dense.begin(), raw_.dense.end());
    into.targets.insert(into.targets.end(), raw_.targets.begin(), raw_.targets.end());
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (into.sizes.size() == 1) {
        std::swap(columns[i], raw_.lookups[i]);
      } else {
        append(columns[i], raw_.lookups[i]);
      }
    }
    before += size;
  }
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const auto& feature = architecture_.features[std::size_t(columns_[i])];
    if (feature.kind == FeatureKind::kQuotientRemainder) {
      divide_lookups(columns[i], feature.collisions, into.lookups[feature.table], into.lookups[feature.table + 1]);
    } else {
      std::swap(into.lookups[feature.table], columns[i]);
    }
  }
  if (into.sizes.size() == 1) {  // the memory of the step before is what the next batch is read into
    for (std::size_t i = 0; i < columns_.size(); ++i) std::swap(raw_.lookups[i], columns[i]);
  }
}

}  // namespace tutti::dlrm
