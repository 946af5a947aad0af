#include "tutti/data/tokenizers/pretokens.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>
#include <vector>

#include "tutti/base/text.h"

namespace tutti {
namespace {

struct Pattern {
  std::string_view name, expression;
};
constexpr Pattern kPatterns[] = {
    {"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {"cl100k",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"v1", R"([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {"v2",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

// White space of PCRE2 is that of Perl, with U+180E; the patterns mean Unicode's, which lost it in version 6.3.
std::string with_unicode_white_space(std::string_view pattern) {
  constexpr std::string_view kWhite = R"(\t-\r\x{85}\p{Z})";  // the inside of a class
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view pair = pattern.substr(i, 2);
    if (pair == R"(\s)" || (pair == R"(\S)" && !in_class)) {
      out += in_class ? std::string(kWhite) : (pair == R"(\s)" ? "[" : "[^") + std::string(kWhite) + "]";
      ++i;
    } else if (pair.starts_with('\\')) {
      out += pair;
      ++i;
    } else {
      in_class = pattern[i] == '[' || (in_class && pattern[i] != ']');
      out += pattern[i];
    }
  }
  return out;
}

}  // namespace

Result<std::string_view> pretoken_pattern(std::string_view name) {
  std::vector<std::string> known;
  for (const Pattern& pattern : kPatterns) {
    if (pattern.name == name) return pattern.expression;
    known.emplace_back(pattern.name);
  }
  return invalid_argument("no pattern is named " + std::string(name),
                          did_you_mean(nearest(name, known), "known: " + join(known, ", ")));
}

struct Pretokens::Machine {
  pcre2_code* code = nullptr;
  pcre2_match_data* match = nullptr;
  ~Machine() {
    ::pcre2_match_data_free(match);
    ::pcre2_code_free(code);
  }
};

Pretokens::Pretokens(std::string_view pattern) : machine_(std::make_unique<Machine>()) {
  int error = 0;
  PCRE2_SIZE at = 0;
  const std::string exact = with_unicode_white_space(pattern);
  machine_->code = ::pcre2_compile(reinterpret_cast<PCRE2_SPTR>(exact.data()), exact.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &at, nullptr);
  if (machine_->code == nullptr) {
    PCRE2_UCHAR words[256] = {};
    ::pcre2_get_error_message(error, words, sizeof words);
    throw Exception(invalid_argument("the pattern \"" + std::string(pattern) + "\" is no regular expression: " +
                                     reinterpret_cast<const char*>(words) + " at " + std::to_string(at)));
  }
  (void)::pcre2_jit_compile(machine_->code, PCRE2_JIT_COMPLETE);  // where it cannot, matching is slower
  machine_->match = ::pcre2_match_data_create(1, nullptr);
}
Pretokens::~Pretokens() = default;
Pretokens::Pretokens(Pretokens&&) noexcept = default;

void Pretokens::begin(std::string_view text) {
  text_ = text;
  at_ = match_begin_ = match_end_ = 0;
}

std::string_view Pretokens::next() {
  if (at_ == text_.size()) return {};
  if (match_end_ <= at_) {
    const int found = ::pcre2_match(machine_->code, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), at_,
                                    PCRE2_NOTEMPTY, machine_->match, nullptr);
    if (found < 0) {
      match_begin_ = match_end_ = text_.size();
    } else {
      const PCRE2_SIZE* const bounds = ::pcre2_get_ovector_pointer(machine_->match);
      match_begin_ = bounds[0], match_end_ = bounds[1];
    }
  }
  // What lies before the match first.
  const std::size_t end = at_ < match_begin_ ? match_begin_ : match_end_;
  const std::string_view piece = text_.substr(at_, end - at_);
  at_ = end;
  return piece;
}

}  // namespace tutti
