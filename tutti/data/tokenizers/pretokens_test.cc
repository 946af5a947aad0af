#include "tutti/data/tokenizers/pretokens.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tutti {
namespace {

std::vector<std::string> pieces(std::string_view text, const char* pattern = "gpt2") {
  Pretokens pretokens(pretoken_pattern(pattern).or_throw());
  pretokens.begin(text);
  std::vector<std::string> all;
  for (auto piece = pretokens.next(); !piece.empty(); piece = pretokens.next()) all.emplace_back(piece);
  return all;
}
using Pieces = std::vector<std::string>;

// As Hugging Face's tokenizers 0.22 cuts it.
TEST(Pretokens, AreGpt2s) {
  EXPECT_EQ(pieces("  Hello,  world! I'll\t\n\n 3.14 na\u00efve \u6771\u4eac\U0001f600 'tis  "),
            (Pieces{" ", " Hello", ",", " ", " world", "!", " I", "'ll", "\t\n\n", " 3", ".", "14", " na\u00efve",
                    " \u6771\u4eac", "\U0001f600", " '", "tis", "  "}));
  EXPECT_EQ(pieces(""), Pieces{});
}

TEST(Pretokens, OfCl100k) {
  EXPECT_EQ(pieces("I'LL take 12345 of\n\n them", "cl100k"),
            (Pieces{"I", "'LL", " take", " ", "123", "45", " of", "\n\n", " them"}));
}

// As tiktoken cuts it with the patterns of Megatron-LM.
TEST(Pretokens, OfMegatronsTikTokenizer) {
  EXPECT_EQ(pieces("It'sCamelCase 12 a/b\n\n x", "v2"),
            (Pieces{"It", "'s", "Camel", "Case", " ", "1", "2", " a", "/b", "\n\n", " x"}));
  EXPECT_EQ(pieces("It'sCamelCase 12 a/b\n\n x", "v1"),
            (Pieces{"It", "'sCamelCase", " ", "1", "2", " a", "/b", "\n\n", " x"}));
}

// U+180E is white space to Perl, and not to Unicode since version 6.3.
TEST(Pretokens, WhiteSpaceIsUnicodes) {
  for (const char* const pattern : {"gpt2", "cl100k", "v1", "v2"}) {
    EXPECT_EQ(pieces("a !\u180e! b", pattern), (Pieces{"a", " !\u180e!", " b"})) << pattern;
    for (const std::string white : {"\t", "\v", "\f", "\u0085", "\u00a0", "\u1680", "\u2000", "\u200a", "\u2028",
                                    "\u2029", "\u202f", "\u205f", "\u3000"})
      EXPECT_EQ(pieces("!" + white + "!", pattern), (Pieces{"!", white, "!"})) << pattern;
    for (const std::string sign : {"\u200b", "\u2060", "\ufeff", "\x1c", "\x1f"})
      EXPECT_EQ(pieces("!" + sign + "!", pattern), (Pieces{"!" + sign + "!"})) << pattern;
  }
}

// Nothing is lost, whatever the bytes.
TEST(Pretokens, OfBytesThatAreNoText) {
  EXPECT_EQ(pieces("ab\xff\xfe cd\xc3"), (Pieces{"ab", "\xff\xfe", " cd", "\xc3"}));
  std::string all;
  for (int i = 0; i < 4096; ++i) all += char(i * 167 + (i >> 5));
  std::string joined;
  for (const std::string& piece : pieces(all)) joined += piece;
  EXPECT_EQ(joined, all);
}

TEST(Pretokens, MistakesAreSentences) {
  EXPECT_EQ(pretoken_pattern("gpt3").error().hint, "did you mean gpt2?");
  try {
    Pretokens("a(");
    FAIL();
  } catch (const Exception& error) {
    EXPECT_EQ(error.error().detail, "the pattern \"a(\" is no regular expression: missing closing parenthesis at 2");
  }
}

}  // namespace
}  // namespace tutti
