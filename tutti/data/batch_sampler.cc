// The state is one number. Its remainder by the epoch's size is the position in the epoch, and the quotient seeds the
// epoch's order. So a run resumes at any position without replaying what came before.
#include "tutti/data/batch_sampler.h"

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/data/permutation.h"

namespace tutti {

BatchSampler::BatchSampler(int replica, int replicas, BatchSamplerOptions options)
    : replica_(std::size_t(replica)), replicas_(std::size_t(replicas)), options_(options) {
  TUTTI_REQUIRE(replicas > 0 && replica >= 0 && replica < replicas, "BatchSampler: replica ", replica, " of ", replicas,
                "; expected 0 <= replica < replicas");
  TUTTI_REQUIRE(options_.batch_size > 0, "BatchSampler: a batch of 0 samples; expected 1 or more");
  TUTTI_REQUIRE(options_.shuffle_multiple == 0 || step() % options_.shuffle_multiple == 0,
                "BatchSampler: shuffle_multiple is ", options_.shuffle_multiple, "; expected a divisor of the ", step(),
                " samples of a global batch");
  TUTTI_REQUIRE(epoch_size() > 0, "BatchSampler: ", options_.dataset_size, " samples do not fill one batch of ",
                options_.batch_size, " samples on each of ", replicas, " replicas; expected at least ", step());
}

std::uint64_t BatchSampler::epoch_size() const {
  if (options_.order == SampleOrder::kSequential && !options_.drop_last) return options_.dataset_size;
  return options_.dataset_size - options_.dataset_size % step();
}

std::int64_t BatchSampler::epoch() const {
  return options_.order == SampleOrder::kSequential ? 0 : std::int64_t(consumed_ / epoch_size());
}

std::uint64_t BatchSampler::batches_left() const {
  const std::uint64_t size = epoch_size();
  const bool once = options_.order == SampleOrder::kSequential;
  const std::uint64_t passed = once ? std::min(consumed_, size) : consumed_ % size;
  return (size - passed + step() - 1) / step();
}

void BatchSampler::restore(State consumed) {
  const std::uint64_t size = epoch_size();
  const bool once = options_.order == SampleOrder::kSequential;
  const std::uint64_t within = once ? consumed : consumed % size;
  TUTTI_REQUIRE(within % step() == 0 || (once && consumed == size), "BatchSampler: ", consumed,
                " consumed samples are not a whole number of batches of ", options_.batch_size, " samples on each of ",
                replicas_, " replicas (", step(), " together, ", size, " an epoch)");
  consumed_ = consumed;
}

std::int64_t BatchSampler::sample(std::size_t replica, std::uint64_t place) const {
  const std::uint64_t within = place % options_.batch_size, batch = place / options_.batch_size;
  switch (options_.order) {
    case SampleOrder::kSequential:
      return std::int64_t(batch * step() + replica * options_.batch_size + within);
    case SampleOrder::kRandom:
      return order_[place * replicas_ + replica];
    case SampleOrder::kRandomSharded:
      return std::int64_t(replica * order_.size()) + order_[place];
  }
  return 0;
}

std::vector<std::int64_t> BatchSampler::of_replicas(std::size_t begin, std::size_t end) {
  const std::uint64_t size = epoch_size();
  const bool once = options_.order == SampleOrder::kSequential;
  if (once && consumed_ >= size) return {};
  draw_order();
  const std::uint64_t within = once ? consumed_ : consumed_ % size;
  std::vector<std::int64_t> samples;
  samples.reserve((end - begin) * options_.batch_size);
  for (std::size_t replica = begin; replica < end; ++replica) {
    for (std::uint64_t i = 0; i < options_.batch_size; ++i) {
      const std::int64_t index = sample(replica, within / replicas_ + i);
      if (!once || std::uint64_t(index) < size) samples.push_back(index);
    }
  }
  consumed_ = once ? std::min(consumed_ + step(), size) : consumed_ + step();
  return samples;
}

void BatchSampler::draw_order() {
  if (options_.order == SampleOrder::kSequential || drawn_epoch_ == epoch()) return;
  drawn_epoch_ = epoch();
  const std::size_t multiple = options_.shuffle_multiple > 0 ? options_.shuffle_multiple : std::size_t(step());
  const std::size_t shuffled = options_.order == SampleOrder::kRandom
                                   ? options_.dataset_size - options_.dataset_size % multiple
                                   : options_.dataset_size / step() * options_.batch_size;
  order_ = random_permutation(shuffled, options_.seed + std::uint64_t(drawn_epoch_));
}

}  // namespace tutti
