#pragma once
// Byte-pair encoding (Sennrich et al. 2016) of bytes, as GPT-2 does it: a text is cut into pieces (pretokens.h), a
// piece begins as its bytes, and the two neighbours whose pair was learned first become one token, again and again.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/data/tokenizers/tokenizer.h"

namespace tutti {

// What a tokenizer has learned.
struct BpeVocabulary {
  std::vector<std::string> tokens;  // the bytes of each; of a special token its name
  struct Merge {
    std::int32_t left, right, result;
    bool operator==(const Merge&) const = default;
  };
  std::vector<Merge> merges;          // the earlier one goes first
  std::int32_t end_of_document = -1;  // -1: there is none
  std::string pattern = "gpt2";       // the name of that with which files of this kind go (pretoken_pattern())
};

// kInvalidArgument: a byte that no token stands for, a merge of unknown tokens, a pattern that is no expression.
Result<std::unique_ptr<Tokenizer>> bpe_tokenizer(BpeVocabulary vocabulary, std::string_view pattern);

// OpenAI's and Hugging Face's pair of files: tokens with their numbers in JSON, and merges in their order, both in the
// characters of byte_characters.h. kCorrupt with file and line.
Result<BpeVocabulary> read_vocabulary(const std::string& vocab_json, const std::string& merges_txt);
// tiktoken's file: a token in base64 and its number a line, of which the numbers are the order of the merges too. The
// end of a document gets the next number. Or Megatron-LM's, a JSON list of {"rank", "token_bytes", "token_str"}: its
// first 2^17 - 1000 tokens come behind 1000 special ones, of which "</s>" is the end of a document.
Result<BpeVocabulary> read_tiktoken(const std::string& path);
// The pair of files. kInvalidArgument: one of them is there already.
Status write_vocabulary(const BpeVocabulary& vocabulary, const std::string& vocab_json, const std::string& merges_txt);

}  // namespace tutti
