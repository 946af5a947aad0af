#pragma once
// Text files to PREFIX.bin and PREFIX.idx, on several threads; the result does not depend on their number.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/data/tokenizers/bpe_training.h"
#include "tutti/data/tokenizers/tokenizer.h"
#include "tutti/data/tokens/text_documents.h"

namespace tutti {

struct TextWork {
  int threads = 1;
  std::function<void(double share)> progress;  // may be empty; called by one thread at a time
};

struct TokenizeReport {
  std::int64_t documents = 0, tokens = 0;
  std::uint64_t text_bytes = 0;
};
// Each document becomes a sequence, and with `append_end` the tokenizer's end of a document follows it.
// kInvalidArgument: the output is there already, or append_end without such a token.
Result<TokenizeReport> tokenize(TextDocuments& documents, const Tokenizer& tokenizer, const std::string& output_prefix,
                                bool append_end, const TextWork& work);

// How often each piece occurs, for train_bpe().
Result<WordCounts> count_words(TextDocuments& documents, std::string_view pattern, const TextWork& work);

}  // namespace tutti
