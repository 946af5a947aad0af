#pragma once
// Learns a byte-pair encoding from text (Sennrich et al. 2016): of all neighbours in all words the most frequent pair
// becomes a token, again and again.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tutti/base/error.h"
#include "tutti/data/tokenizers/bpe.h"

namespace tutti {

// How often each piece of a text (pretokens.h) occurs. One thread; several counts can be added up.
class WordCounts {
 public:
  void add(std::string_view word, std::uint64_t times = 1);
  void add(const WordCounts& others);
  const std::unordered_map<std::string, std::uint64_t>& counts() const { return counts_; }

 private:
  std::unordered_map<std::string, std::uint64_t> counts_;
};

struct BpeTrainingOptions {
  std::int64_t vocabulary = 32768;    // tokens in all: 256 bytes, merges, and the end of a document; at least 257
  std::uint64_t least_frequency = 2;  // a pair that is rarer is not merged
  std::function<void(double share)> progress;  // may be empty; called now and then, on the calling thread
};

// Of pairs that are equally frequent, that of the smaller numbers comes first: so the result depends on the counts
// alone. (Hugging Face's tokenizers choose alike.) May have fewer tokens than asked for, if there is nothing more to
// merge.
BpeVocabulary train_bpe(const WordCounts& words, const BpeTrainingOptions& options);

}  // namespace tutti
