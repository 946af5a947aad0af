#pragma once
// From samples to what a rank's stages read: who has neither the first stage nor the last one reads nothing, unless
// layers have to know where documents begin.
#include <cstdint>
#include <optional>
#include <vector>

#include "tutti/data/batch_sampler.h"
#include "tutti/data/tokens/gpt_dataset.h"
#include "tutti/models/gpt/options.h"
#include "tutti/models/transformer/transformer.h"

namespace tutti::gpt {

// One thread at a time.
class Batches {
 public:
  // `dataset`: null on ranks that need no data. `part`: positions of this rank. All have to stay. Batches are on
  // `device`.
  Batches(const GptDataset* dataset, const Parallel& groups, const Options& options, SampleOrder order,
          const SequencePart& part, at::Device device = at::kCPU);

  // Goes on after so many samples of all replicas. Throws Exception where these are no whole number of micro batches of
  // all replicas.
  void restore(std::int64_t consumed);
  // Those of a step (or an evaluation), by their number; `step` is what dropout hangs on.
  std::vector<MicroBatch> take(int count, std::int64_t step);

 private:
  MicroBatch read(const std::vector<std::int64_t>& samples) const;

  const GptDataset* const dataset_;
  const Parallel& groups_;
  const Options& options_;
  const SequencePart& part_;
  const at::Device device_;
  std::optional<BatchSampler> sampler_;
};

}  // namespace tutti::gpt
