#pragma once
// Where GPT-2 cuts a text before it merges bytes: words with the blank before them, numbers, runs of signs, runs of
// blanks. No token reaches over such a cut. The cuts are those of a regular expression (Radford et al. 2019,
// encoder.py), matched by PCRE2 with Unicode's classes.
#include <memory>
#include <string_view>

#include "tutti/base/error.h"

namespace tutti {

// The expressions that are known by a name: "gpt2" (also of r50k_base and p50k_base), "cl100k", and "v1" and "v2" of
// Megatron-LM's TikTokenizer.
Result<std::string_view> pretoken_pattern(std::string_view name);

// A text's pieces, in order, nothing left out: bytes that are no UTF-8, or that the expression does not match, are
// pieces of their own. One thread.
class Pretokens {
 public:
  explicit Pretokens(std::string_view pattern);  // throws Exception(kInvalidArgument) if it is no expression
  ~Pretokens();
  Pretokens(Pretokens&&) noexcept;

  void begin(std::string_view text);
  // The next piece; empty at the end.
  std::string_view next();

 private:
  struct Machine;
  std::unique_ptr<Machine> machine_;
  std::string_view text_;
  std::size_t at_ = 0, match_begin_ = 0, match_end_ = 0;  // [match_begin_, match_end_): found, and not yet given
};

}  // namespace tutti
