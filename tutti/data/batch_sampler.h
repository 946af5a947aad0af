#pragma once
// The samples of each batch of a replica: Megatron-LM's "single" (sequential) and "cyclic" (random) samplers
// (megatron/training/datasets/data_samplers.py). Their position is one number, the samples that all replicas together
// have consumed; a run resumes from it.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

enum class SampleOrder {
  kSequential,     // 0, 1, 2, ... once: replica r takes the r-th part of every global batch
  kRandom,         // every epoch has a new order, without end: replica r takes positions r, r + replicas, ...
  kRandomSharded,  // likewise, but each replica shuffles a part of the dataset, the same part in all epochs
};

struct BatchSamplerOptions {
  std::size_t dataset_size = 0;
  std::size_t batch_size = 1;  // of one replica (Megatron's micro batch)
  SampleOrder order = SampleOrder::kRandom;
  // Epoch e is shuffled by random_permutation(_, seed + e), as Megatron does with seed 0. The same on every rank.
  std::uint64_t seed = 0;
  // kRandom shuffles the largest multiple of this number of samples. 0: of the global batch, so each step of an epoch
  // has the same samples for every number of replicas that share a global batch. Megatron: batch_size.
  std::size_t shuffle_multiple = 0;
  // Applies to kSequential. If false, the last batch has what is left, which may be nothing for some replicas. The
  // random orders always drop the samples that do not fill a global batch.
  bool drop_last = true;
};

// A global batch is one batch of every replica. Not thread-safe. Throws Exception for a replica that is not in
// 0 .. replicas-1, a batch size of 0, or a dataset smaller than a global batch. Difference from Megatron: there, an
// epoch of kRandom may have one batch more on the first replicas than on the last, which then hang; here, all have
// the same number.
class BatchSampler {
 public:
  using State = std::uint64_t;  // consumed()

  BatchSampler(int replica, int replicas, BatchSamplerOptions options);
  // Takes a Group, or any other type with rank() and size().
  template <class Ranks>
    requires requires(const Ranks& ranks) { int(ranks.rank()), int(ranks.size()); }
  BatchSampler(const Ranks& ranks, BatchSamplerOptions options) : BatchSampler(ranks.rank(), ranks.size(), options) {}

  // This replica's next batch. kSequential: empty at the end of the dataset.
  std::vector<std::int64_t> take() { return of_replicas(replica_, replica_ + 1); }
  // The next global batch, replica 0's part first: for one reader that scatters to the others.
  std::vector<std::int64_t> take_for_all() { return of_replicas(0, replicas_); }
  // Batches left in the epoch; kSequential: in the dataset.
  std::uint64_t batches_left() const;
  std::int64_t epoch() const;  // 0 for kSequential

  // Samples that all replicas together have consumed since the start of training, over all epochs.
  std::uint64_t consumed() const { return consumed_; }
  State state() const { return consumed_; }
  // Resumes after this many samples. Throws Exception unless they are, counted from the start of the epoch, a whole
  // number of global batches. So another number of replicas can resume if its global batch divides them too; with
  // kRandom and another global batch, samples of the current epoch may come twice.
  void restore(State consumed);

 private:
  std::uint64_t step() const { return std::uint64_t(options_.batch_size) * replicas_; }  // samples of a global batch
  std::uint64_t epoch_size() const;                                                      // samples used in an epoch
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
