#pragma once
// Which samples a replica takes in each batch, counted by the samples that all replicas have consumed: Megatron-LM's
// "single" (sequential) and "cyclic" (random) samplers (megatron/training/datasets/data_samplers.py). A run goes on
// from that one number.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

enum class SampleOrder {
  kSequential,     // 0, 1, 2, ... once: replica r takes the r-th piece of every batch of all replicas
  kRandom,         // every epoch shuffled anew, for ever: one order for all, of which replica r takes each r-th place
  kRandomSharded,  // the same, but each replica shuffles a part of the dataset that is its own in all epochs
};

struct BatchSamplerOptions {
  std::size_t dataset_size = 0;
  std::size_t batch_size = 1;  // of one replica (Megatron's micro batch)
  SampleOrder order = SampleOrder::kRandom;
  // Epoch e is shuffled by random_permutation(_, seed + e), as Megatron does with seed 0. The same on every rank.
  std::uint64_t seed = 0;
  // kSequential: without it, the last batch has what is left, which may be nothing for some replicas. The random orders
  // always leave out what does not fill a batch of all replicas.
  bool drop_last = true;
};

// Not thread-safe. Throws Exception for a replica outside of their number, a batch of none, or a dataset that does not
// fill one batch of all replicas. (One thing differs from Megatron's: there an epoch of kRandom may have a batch more
// on the first replicas than on the last ones, which then hang; here it has as many on all.)
class BatchSampler {
 public:
  using State = std::uint64_t;  // consumed()

  BatchSampler(int replica, int replicas, BatchSamplerOptions options);
  // A Group, or anything else with rank() and size().
  template <class Ranks>
    requires requires(const Ranks& ranks) { int(ranks.rank()), int(ranks.size()); }
  BatchSampler(const Ranks& ranks, BatchSamplerOptions options) : BatchSampler(ranks.rank(), ranks.size(), options) {}

  // This replica's next batch; kSequential: empty once the dataset is through.
  std::vector<std::int64_t> take() { return of_replicas(replica_, replica_ + 1); }
  // The next batch of all replicas, that of replica 0 first: for one reader that scatters to the others.
  std::vector<std::int64_t> take_for_all() { return of_replicas(0, replicas_); }
  // Batches until the epoch ends; kSequential: until the dataset is through.
  std::uint64_t batches_left() const;
  std::int64_t epoch() const;  // 0 for kSequential

  // Samples that all replicas together have consumed, since ever.
  std::uint64_t consumed() const { return consumed_; }
  State state() const { return consumed_; }
  // Goes on after so many samples. Throws Exception where these are no whole number of batches of all replicas (from
  // the start of the epoch): so another number of replicas can go on where theirs divide it too.
  void restore(State consumed);

 private:
  std::uint64_t step() const { return std::uint64_t(options_.batch_size) * replicas_; }  // a batch of all
  std::uint64_t epoch_size() const;  // samples that an epoch hands out
  std::vector<std::int64_t> of_replicas(std::size_t begin, std::size_t end);
  std::int64_t sample(std::size_t replica, std::uint64_t place) const;
  void draw_order();

  std::size_t replica_, replicas_;
  BatchSamplerOptions options_;
  std::uint64_t consumed_ = 0;
  std::vector<std::int64_t> order_;  // of drawn_epoch_
  std::int64_t drawn_epoch_ = -1;
};

}  // namespace tutti
