// Words are lists of tokens with a frequency. The count of each pair over all words is kept up to date: a merge touches
// only the words in which its pair occurs, which are listed for each pair. The most frequent pair comes from a heap
// whose entries may be out of date: one whose count has changed is put back with the count it has now.
#include "tutti/data/tokenizers/bpe_training.h"

#include <algorithm>
#include <array>
#include <queue>

#include "tutti/data/tokenizers/byte_characters.h"

namespace tutti {
namespace {

struct Pair {
  std::int32_t left, right;
  bool operator==(const Pair&) const = default;
  auto operator<=>(const Pair&) const = default;
};
struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    return std::hash<std::uint64_t>()(std::uint64_t(std::uint32_t(pair.left)) << 32 | std::uint32_t(pair.right));
  }
};
struct PairFacts {
  std::int64_t count = 0;
  std::vector<std::uint32_t> words;  // in which it occurred when it was seen; some more than once, some no longer
};
struct Word {
  std::vector<std::int32_t> tokens;
  std::int64_t frequency;
};
struct Candidate {
  std::int64_t count;
  Pair pair;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class Trainer {
 public:
  Trainer(const WordCounts& words, const BpeTrainingOptions& options) : options_(options) {
    std::array<std::int32_t, 256> token_of{};
    for (std::size_t i = 0; i < 256; ++i) {
      token_of[byte_order()[i]] = std::int32_t(i);
      vocabulary_.tokens.emplace_back(1, char(byte_order()[i]));
    }
    for (const auto& [text, frequency] : words.counts()) {
      Word word{{}, std::int64_t(frequency)};
      for (const char byte : text) word.tokens.push_back(token_of[std::uint8_t(byte)]);
      words_.push_back(std::move(word));
    }
    for (std::uint32_t w = 0; w < words_.size(); ++w)
      for (std::size_t i = 0; i + 1 < words_[w].tokens.size(); ++i)
        count({words_[w].tokens[i], words_[w].tokens[i + 1]}, words_[w].frequency, w);
    for (const auto& [pair, facts] : pairs_) heap_.push({facts.count, pair});
  }

  BpeVocabulary run() {
    const std::size_t wanted = std::size_t(std::max<std::int64_t>(options_.vocabulary - 1, 256));
    while (vocabulary_.tokens.size() < wanted && !heap_.empty()) {
      const Candidate best = heap_.top();
      heap_.pop();
      const std::int64_t count = pairs_[best.pair].count;
      if (count != best.count) {
        if (count > 0) heap_.push({count, best.pair});
        continue;
      }
      if (count < std::int64_t(options_.least_frequency)) break;
      merge(best.pair);
      if (options_.progress && vocabulary_.tokens.size() % 256 == 0)
        options_.progress(double(vocabulary_.tokens.size() - 256) / double(wanted - 256));
    }
    vocabulary_.end_of_document = std::int32_t(vocabulary_.tokens.size());
    vocabulary_.tokens.emplace_back("<|endoftext|>");
    return std::move(vocabulary_);
  }

 private:
  void count(const Pair& pair, std::int64_t frequency, std::uint32_t word) {
    PairFacts& facts = pairs_[pair];
    facts.count += frequency;
    if (facts.words.empty() || facts.words.back() != word) facts.words.push_back(word);
  }

  void merge(const Pair& pair) {
    const auto result = std::int32_t(vocabulary_.tokens.size());
    vocabulary_.tokens.push_back(vocabulary_.tokens[std::size_t(pair.left)] +
                                 vocabulary_.tokens[std::size_t(pair.right)]);
    vocabulary_.merges.push_back({pair.left, pair.right, result});
    std::vector<std::uint32_t> words = std::move(pairs_[pair].words);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    fresh_.clear();
    for (const std::uint32_t w : words) merge_in(w, pair, result);
    pairs_.erase(pair);
    for (const Pair& made : fresh_)
      if (const auto facts = pairs_.find(made); facts != pairs_.end() && facts->second.count > 0)
        heap_.push({facts->second.count, made});
  }

  // All pairs of the word are taken back, and those that it has after the merge counted: words are short.
  void merge_in(std::uint32_t w, const Pair& pair, std::int32_t result) {
    auto& [tokens, frequency] = words_[w];
    bool occurs = false;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) occurs |= Pair{tokens[i], tokens[i + 1]} == pair;
    if (!occurs) return;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) pairs_[{tokens[i], tokens[i + 1]}].count -= frequency;
    std::size_t to = 0;
    for (std::size_t from = 0; from < tokens.size(); ++to) {
      const bool here = from + 1 < tokens.size() && Pair{tokens[from], tokens[from + 1]} == pair;
      tokens[to] = here ? result : tokens[from];
      from += here ? 2 : 1;
    }
    tokens.resize(to);
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const Pair now{tokens[i], tokens[i + 1]};
      if (now.left != result && now.right != result) {
        pairs_[now].count += frequency;  // which lists the word already
        continue;
      }
      count(now, frequency, w);
      fresh_.push_back(now);
    }
  }

  const BpeTrainingOptions& options_;
  BpeVocabulary vocabulary_;
  std::vector<Word> words_;
  std::unordered_map<Pair, PairFacts, PairHash> pairs_;
  std::priority_queue<Candidate> heap_;
  std::vector<Pair> fresh_;  // pairs that the merge under way has made
};

}  // namespace

void WordCounts::add(std::string_view word, std::uint64_t times) { counts_[std::string(word)] += times; }
void WordCounts::add(const WordCounts& others) {
  for (const auto& [word, times] : others.counts_) counts_[word] += times;
}

BpeVocabulary train_bpe(const WordCounts& words, const BpeTrainingOptions& options) {
  TUTTI_REQUIRE(options.vocabulary >= 257 && options.vocabulary <= 1 << 24, "a vocabulary of ", options.vocabulary,
                " tokens, expected 257 (256 bytes and the end of a document) to ", 1 << 24);
  return Trainer(words, options).run();
}

}  // namespace tutti
