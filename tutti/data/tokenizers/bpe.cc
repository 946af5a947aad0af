#include "tutti/data/tokenizers/bpe.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>

#include "tutti/base/text.h"
#include "tutti/data/tokenizers/pretokens.h"

namespace tutti {
namespace {

constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();

struct Learned {
  std::int32_t rank = kNone, result = 0;
};
// From a pair of tokens to the merge of it.
using Merges = std::unordered_map<std::uint64_t, Learned>;
std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t(std::uint32_t(left)) << 32 | std::uint32_t(right);
}

class BpeEncoder : public TextEncoder {
 public:
  BpeEncoder(const Merges& merges, const std::array<std::int32_t, 256>& bytes, std::string_view pattern)
      : merges_(merges), bytes_(bytes), pretokens_(pattern) {}

  void encode(std::string_view text, std::vector<std::int32_t>& into) override {
    pretokens_.begin(text);
    for (std::string_view piece = pretokens_.next(); !piece.empty(); piece = pretokens_.next()) {
      if (piece.size() > kLongest) {
        merge(piece, into);
        continue;
      }
      const auto known = words_.find(piece);
      if (known != words_.end()) {
        into.insert(into.end(), known->second.begin(), known->second.end());
        continue;
      }
      const std::size_t begin = into.size();
      merge(piece, into);
      if (words_.size() == kMostWords) words_.clear();
      words_.emplace(piece, std::vector<std::int32_t>(into.begin() + std::ptrdiff_t(begin), into.end()));
    }
  }

 private:
  // A longer piece is rare and would fill the memory of words; so would more words than these, of some MB in all.
  static constexpr std::size_t kLongest = 64, kMostWords = 1 << 17;

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };

  Learned learned(std::int32_t left, std::int32_t right) const {
    const auto merge = merges_.find(pair_of(left, right));
    return merge == merges_.end() ? Learned() : merge->second;
  }

  // A list of the tokens with the merge of each and the one after it: the least rank is merged, and its two neighbours
  // are looked up anew. Quadratic in a word's few bytes; a long piece goes by a heap of ranks.
  void merge(std::string_view piece, std::vector<std::int32_t>& into) {
    if (piece.size() > kLongest) return merge_long(piece, into);
    parts_.clear();
    for (const char byte : piece) parts_.push_back({bytes_[std::uint8_t(byte)], {}});
    for (std::size_t i = 0; i + 1 < parts_.size(); ++i) parts_[i].next = learned(parts_[i].token, parts_[i + 1].token);
    while (parts_.size() > 1) {
      std::size_t least = 0;
      for (std::size_t i = 1; i + 1 < parts_.size(); ++i)
        if (parts_[i].next.rank < parts_[least].next.rank) least = i;
      if (parts_[least].next.rank == kNone) break;
      parts_[least].token = parts_[least].next.result;
      parts_.erase(parts_.begin() + std::ptrdiff_t(least) + 1);
      parts_[least].next =
          least + 1 < parts_.size() ? learned(parts_[least].token, parts_[least + 1].token) : Learned();
      if (least > 0) parts_[least - 1].next = learned(parts_[least - 1].token, parts_[least].token);
    }
    for (const Part& part : parts_) into.push_back(part.token);
  }

  void merge_long(std::string_view piece, std::vector<std::int32_t>& into) {
    struct Node {
      std::int32_t token;
      std::size_t before, after;
    };
    constexpr std::size_t kEnd = std::numeric_limits<std::size_t>::max();
    struct Candidate {
      std::int32_t rank;
      std::size_t at;
      std::int32_t left, right, result;  // if these still stand there
      bool operator<(const Candidate& other) const {
        return rank != other.rank ? rank > other.rank : at > other.at;  // the top of the heap is the least
      }
    };
    std::vector<Node> nodes;
    std::vector<Candidate> heap;
    for (std::size_t i = 0; i < piece.size(); ++i)
      nodes.push_back({bytes_[std::uint8_t(piece[i])], i == 0 ? kEnd : i - 1, i + 1 == piece.size() ? kEnd : i + 1});
    const auto consider = [&](std::size_t at) {
      if (at == kEnd || nodes[at].after == kEnd) return;
      const std::int32_t left = nodes[at].token, right = nodes[nodes[at].after].token;
      const Learned merge = learned(left, right);
      if (merge.rank == kNone) return;
      heap.push_back({merge.rank, at, left, right, merge.result});
      std::push_heap(heap.begin(), heap.end());
    };
    for (std::size_t i = 0; i < nodes.size(); ++i) consider(i);
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end());
      const Candidate best = heap.back();
      heap.pop_back();
      Node& node = nodes[best.at];
      if (node.token != best.left || node.after == kEnd || nodes[node.after].token != best.right) continue;
      Node& gone = nodes[node.after];
      node.token = best.result;
      gone.token = -1;  // so that nobody merges with it
      node.after = gone.after;
      if (node.after != kEnd) nodes[node.after].before = best.at;
      consider(node.before);
      consider(best.at);
    }
    for (std::size_t at = 0; at != kEnd; at = nodes[at].after) into.push_back(nodes[at].token);
  }

  struct Part {
    std::int32_t token;
    Learned next;  // with the part after this one
  };

  const Merges& merges_;
  const std::array<std::int32_t, 256>& bytes_;
  Pretokens pretokens_;
  std::vector<Part> parts_;
  std::unordered_map<std::string, std::vector<std::int32_t>, Hash, std::equal_to<>> words_;
};

class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(BpeVocabulary vocabulary, std::string pattern, const std::array<std::int32_t, 256>& bytes)
      : vocabulary_(std::move(vocabulary)), pattern_(std::move(pattern)), bytes_(bytes) {
    merges_.reserve(vocabulary_.merges.size() * 2);
    for (const auto& [left, right, result] : vocabulary_.merges)
      merges_.emplace(pair_of(left, right), Learned{std::int32_t(merges_.size()), result});
  }
  std::unique_ptr<TextEncoder> encoder() const override {
    return std::make_unique<BpeEncoder>(merges_, bytes_, pattern_);
  }
  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    for (const std::int32_t token : tokens)
      if (token >= 0 && std::size_t(token) < vocabulary_.tokens.size()) text += vocabulary_.tokens[std::size_t(token)];
    return text;
  }
  std::int64_t vocabulary() const override { return std::int64_t(vocabulary_.tokens.size()); }
  std::optional<std::int32_t> end_of_document() const override {
    return vocabulary_.end_of_document < 0 ? std::nullopt : std::optional(vocabulary_.end_of_document);
  }

 private:
  BpeVocabulary vocabulary_;
  std::string pattern_;
  std::array<std::int32_t, 256> bytes_;  // the token of each byte
  Merges merges_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> bpe_tokenizer(BpeVocabulary vocabulary, std::string_view pattern) {
  std::array<std::int32_t, 256> bytes;
  bytes.fill(-1);
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i)
    if (vocabulary.tokens[i].size() == 1 && std::int32_t(i) != vocabulary.end_of_document)
      bytes[std::uint8_t(vocabulary.tokens[i][0])] = std::int32_t(i);
  for (std::size_t byte = 0; byte < 256; ++byte)
    if (bytes[byte] < 0)
      return invalid_argument("the vocabulary has no token for byte " + std::to_string(byte),
                              "a byte-level vocabulary has all 256");
  const auto known = [&](std::int32_t token) { return token >= 0 && std::size_t(token) < vocabulary.tokens.size(); };
  for (std::size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const auto& [left, right, result] = vocabulary.merges[i];
    if (!known(left) || !known(right) || !known(result))
      return invalid_argument("merge " + std::to_string(i) + " is of tokens that the vocabulary does not have");
  }
  try {
    (void)Pretokens(pattern);
  } catch (const Exception& error) {
    return error.error();
  }
  return std::unique_ptr<Tokenizer>(std::make_unique<BpeTokenizer>(std::move(vocabulary), std::string(pattern), bytes));
}

}  // namespace tutti
