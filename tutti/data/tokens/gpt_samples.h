#pragma once
// Which tokens the i-th sample of a GPT dataset has: Megatron-LM's three indices
// (megatron/core/datasets/gpt_dataset.py), bit for bit, so that a run here and one there see the same samples.
//
// The documents of all epochs are put in a shuffled order and read as one stream of tokens; sample k is tokens
// [k L, k L + L] of it, L + 1 of them: the last of one sample is the first of the next, which predicts it. The order of
// the samples is shuffled once more. (The last epoch is shuffled by itself where less than four fifths of it are
// needed.)
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/data/tokens/token_file.h"

namespace tutti {

struct GptSampleOptions {
  std::int64_t sequence_length = 1024;  // L
  // At least so many samples, over as many epochs as that takes; 0: those of one epoch.
  std::int64_t samples = 0;
  std::uint32_t seed = 1234;  // of numpy's legacy generator
};

// Of some sequences of a token file: [first, last), as a split has them. Immutable: any thread may call it.
class GptSamples {
 public:
  // `file` must outlive it. Throws Exception (kInvalidArgument) where the sequences have no tokens at all, or not
  // enough for one sample.
  GptSamples(const TokenFile& file, std::int64_t first, std::int64_t last, const GptSampleOptions& options);

  std::int64_t size() const { return std::int64_t(sample_index_.size()) - 1; }
  std::int64_t epochs() const { return epochs_; }
  std::int64_t sequence_length() const { return length_; }
  // The L + 1 tokens of sample `i` of the shuffled order.
  void read(std::int64_t i, std::span<std::int64_t> into) const;

  // As Megatron-LM saves them, for comparison.
  std::span<const std::int32_t> document_index() const { return document_index_; }
  struct Position {
    std::int64_t document;  // in document_index()
    std::int64_t offset;    // in tokens
    bool operator==(const Position&) const = default;
  };
  std::span<const Position> sample_index() const { return sample_index_; }
  std::span<const std::uint32_t> shuffle_index() const { return shuffle_index_; }

 private:
  const TokenFile& file_;
  std::int64_t length_, epochs_ = 1;
  std::vector<std::int32_t> document_index_;  // sequences of the file
  std::vector<Position> sample_index_;
  std::vector<std::uint32_t> shuffle_index_;
};

}  // namespace tutti
