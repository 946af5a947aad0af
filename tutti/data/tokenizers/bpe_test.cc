// Compared with Hugging Face's tokenizers 0.22 (BpeTrainer with the byte-level alphabet), which learned from the same
// text.
#include "tutti/data/tokenizers/bpe.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tutti/base/text.h"
#include "tutti/data/tokenizers/bpe_training.h"
#include "tutti/data/tokenizers/byte_characters.h"
#include "tutti/data/tokenizers/pretokens.h"

namespace tutti {
namespace {

const std::string_view kPattern = pretoken_pattern("gpt2").or_throw();

std::string text() {
  const std::string part =
      "the cat sat on the mat. the cat's hat isn't on the mat; that hat's \u00dcber 12 345 na\u00efve\n\n  tabs\tand  "
      "blanks  \n";
  return part + part + part +
         "low lower lowest newer newest widest \u6771\u4eac \u6771\u4eac\u90fd \U0001f600\U0001f600\n";
}

BpeVocabulary learned(std::int64_t size) {
  WordCounts words;
  Pretokens pretokens(kPattern);
  const std::string all = text();
  pretokens.begin(all);
  for (auto word = pretokens.next(); !word.empty(); word = pretokens.next()) words.add(word);
  return train_bpe(words, {.vocabulary = size});
}

std::vector<std::int32_t> encoded(const Tokenizer& tokenizer, std::string_view what) {
  std::vector<std::int32_t> tokens;
  tokenizer.encoder()->encode(what, tokens);
  return tokens;
}

const char* const kMerges =
    "a t|t h|\u0120 th|\u0120th e|' s|a n|c at|h at|m at|o n|\u0120 cat|\u0120 hat|\u0120 mat|\u0120 on|e r|\u0120 n|' "
    "t|"
    "1 2|3 4|a b|a \u00c3|b l|b er|e s|i s|k s|l o|s at|t ab|v e|\u00af ve|\u00c3 \u013e|\u010a \u010a|\u0120 \u0120|"
    "\u0120 12|\u0120 34|\u0120 bl|\u0120 is|\u0120 sat|\u0120 tab|\u0120 \u00c3\u013e|th e|\u0120th at";
const std::string kSentence = "the lowest newest hat isn't \u00dcber-na\u00efve \u6771\u4eac\u90fd!\n";
const std::vector<std::int32_t> kTokens = {297, 220, 282, 86,  279, 83,  271, 68,  86,  279, 83,
                                           267, 293, 77,  272, 296, 278, 12,  77,  276, 286, 220,
                                           162, 251, 109, 160, 118, 105, 165, 225, 121, 0,   198};

TEST(Bpe, LearnsWhatOthersLearn) {
  const BpeVocabulary vocabulary = learned(300);
  std::string merges;
  for (const auto& [left, right, result] : vocabulary.merges)
    merges += (merges.empty() ? "" : "|") + to_byte_characters(vocabulary.tokens[std::size_t(left)]) + " " +
              to_byte_characters(vocabulary.tokens[std::size_t(right)]);
  EXPECT_EQ(merges, kMerges);
  EXPECT_EQ(vocabulary.tokens.size(), 300u);
  EXPECT_EQ(vocabulary.end_of_document, 299);
  EXPECT_EQ(learned(100000).tokens.size(), learned(200000).tokens.size());  // nothing is left to merge
  EXPECT_THROW(learned(256), Exception);
}

TEST(Bpe, EncodesAsOthersDo) {
  const auto tokenizer = bpe_tokenizer(learned(300), kPattern).or_throw();
  EXPECT_EQ(encoded(*tokenizer, kSentence), kTokens);
  EXPECT_EQ(tokenizer->decode(kTokens), kSentence);
  EXPECT_EQ(tokenizer->vocabulary(), 300);
  EXPECT_EQ(tokenizer->end_of_document(), 299);
}

// A piece of more than 64 bytes goes another way, with the same result: letter by letter, as its short ones.
TEST(Bpe, LongPiecesAsShortOnes) {
  const auto tokenizer = bpe_tokenizer(learned(300), "[a-zA-Z ]+").or_throw();
  const auto by_definition = [&](std::string word) {
    const BpeVocabulary vocabulary = learned(300);
    std::vector<std::int32_t> tokens;
    for (const char byte : word)
      tokens.push_back(
          std::int32_t(std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), std::string(1, byte)) -
                       vocabulary.tokens.begin()));
    for (const auto& merge : vocabulary.merges)  // each as often as it goes, the earlier ones first
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
        if (tokens[i] == merge.left && tokens[i + 1] == merge.right) {
          tokens[i] = merge.result;
          tokens.erase(tokens.begin() + std::ptrdiff_t(i) + 1);
        }
    return tokens;
  };
  std::uint32_t state = 5;
  for (int length : {1, 2, 7, 63, 64, 65, 66, 200, 1000}) {
    std::string word;
    for (int i = 0; i < length; ++i)
      state = state * 1664525u + 1013904223u, word += "theatcons b"[state >> 24 % 11 & 7];
    EXPECT_EQ(encoded(*tokenizer, word), by_definition(word)) << length << ": " << word;
  }
}

TEST(Bpe, EveryByteComesBack) {
  const auto tokenizer = bpe_tokenizer(learned(300), kPattern).or_throw();
  std::string all;
  for (int i = 0; i < 1024; ++i) all += char(i * 77 + i / 256);
  EXPECT_EQ(tokenizer->decode(encoded(*tokenizer, all)), all);
  const auto bytes = byte_tokenizer();
  EXPECT_EQ(bytes->decode(encoded(*bytes, all)), all);
  EXPECT_EQ(bytes->vocabulary(), 257);
}

class BpeFiles : public testing::Test {
 protected:
  BpeFiles() { std::filesystem::create_directories(folder_); }
  ~BpeFiles() override { std::filesystem::remove_all(folder_); }
  std::string put(const char* name, const std::string& bytes) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary | std::ios::trunc) << bytes;
    return folder_ + "/" + name;
  }
  const std::string folder_ = testing::TempDir() + "tutti_bpe_" + std::to_string(::getpid());
};

TEST_F(BpeFiles, ComeBackAsTheyWere) {
  const BpeVocabulary vocabulary = learned(300);
  const std::string vocab = folder_ + "/vocab.json", merges = folder_ + "/merges.txt";
  write_vocabulary(vocabulary, vocab, merges).or_throw();
  const BpeVocabulary again = read_vocabulary(vocab, merges).or_throw();
  EXPECT_EQ(again.tokens, vocabulary.tokens);
  EXPECT_EQ(again.merges, vocabulary.merges);
  EXPECT_EQ(again.end_of_document, vocabulary.end_of_document);
  EXPECT_EQ(write_vocabulary(vocabulary, vocab, merges).error().detail, vocab + " is there already");
}

TEST_F(BpeFiles, OfTiktoken) {
  // Bytes in their order, then "th", "he", "the": base64 of each.
  std::string file;
  for (int byte = 0; byte < 256; ++byte) {
    constexpr char k64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    file += std::string{k64[byte >> 2], k64[(byte & 3) << 4], '=', '='} + " " + std::to_string(byte) + "\n";
  }
  file += "dGg= 256\naGU= 257\ndGhl 258\n";
  const auto tokenizer = bpe_tokenizer(read_tiktoken(put("a.tiktoken", file)).or_throw(), kPattern).or_throw();
  EXPECT_EQ(encoded(*tokenizer, "the he"), (std::vector<std::int32_t>{258, 32, 257}));
  EXPECT_EQ(tokenizer->end_of_document(), 259);
  const std::string wrong = put("b.tiktoken", "YQ== 0\n!! 1\n"), gap = put("c.tiktoken", "YQ== 0\nYg== 2\n");
  EXPECT_EQ(read_tiktoken(wrong).error().detail,
            wrong + ": line 2 is \"!! 1\", expected a token in base64 and its number");
  EXPECT_EQ(read_tiktoken(gap).error().detail, gap + ": line 2 has number 2, expected 1");
}

// The file of Megatron-LM's TikTokenizer: behind 1000 special tokens, the rest of 2^17.
TEST_F(BpeFiles, OfMegatronsTikTokenizer) {
  std::string file = "[";
  auto add = [&, rank = 0](const std::string& base64) mutable {
    file += std::string(rank == 0 ? "" : ",") + R"({"rank": )" + std::to_string(rank) + R"(, "token_bytes": ")" +
            base64 + R"(", "token_str": ""})";
    ++rank;
  };
  for (int byte = 0; byte < 256; ++byte) {
    constexpr char k64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    add({k64[byte >> 2], k64[(byte & 3) << 4], '=', '='});
  }
  for (const char* const token : {"dGg=", "aGU=", "dGhl"}) add(token);  // th, he, the
  const BpeVocabulary vocabulary = read_tiktoken(put("a.json", file + "]")).or_throw();
  EXPECT_EQ(vocabulary.pattern, "v2");
  const auto tokenizer = bpe_tokenizer(vocabulary, pretoken_pattern("v2").or_throw()).or_throw();
  EXPECT_EQ(encoded(*tokenizer, "the he</s>"), (std::vector<std::int32_t>{1258, 1032, 1257, 1060, 1047, 1115, 1062}));
  EXPECT_EQ(tokenizer->end_of_document(), 2);
  EXPECT_EQ(tokenizer->vocabulary(), 1259);
  const std::vector<std::int32_t> tokens = {1, 1258, 1032, 1257, 2, 999};
  EXPECT_EQ(tokenizer->decode(tokens), "<s>the he</s><SPECIAL_999>");
  for (int more = 0; more < 140'000; ++more) add("YWI=");
  EXPECT_EQ(read_tiktoken(put("long.json", file + "]")).or_throw().tokens.size(), 131'072u);
  const std::string none = put("none.json", " [1]"),
                    other = put("other.json", R"([{"rank": 1, "token_bytes": "YQ=="}])");
  EXPECT_EQ(read_tiktoken(none).error().detail,
            none + ": entry 0 is 1, expected \"rank\": 0 and \"token_bytes\" in base64");
  EXPECT_THAT(read_tiktoken(other).error().detail, testing::HasSubstr("entry 0 is {\"rank\":1,"));
  EXPECT_EQ(read_tiktoken(put("open.json", "[{")).error().detail, folder_ + "/open.json: is no JSON list of tokens");
}

// As when one file is given for another: its first line may be all of it.
TEST_F(BpeFiles, OnlyTheBeginningOfALongLineIsShown) {
  const std::string vocab = put("vocab.json", R"({"a":0,"b":1,"ab":2})");
  const std::string json = R"({"!": 0, "\"": 1, "aaaaaaaaaaaaaaaaaa)" + std::string(100000, 'x') + R"(": 2})";
  const std::string shown = R"("{"!": 0, "\"": 1, "aaaaaaaaaaaaaaaaaaxxx...", expected )";
  for (const auto& error :
       {read_vocabulary(vocab, put("all.json", json)).error(), read_tiktoken(put("all", json)).error()}) {
    EXPECT_NE(error.detail.find("line 1 is " + shown), std::string::npos) << error.detail.substr(0, 300);
    EXPECT_LT(error.detail.size(), 300u);
    EXPECT_EQ(error.hint, "this looks like vocab.json (--vocab-file), or tokenizer.json, which is not read");
  }
  // No character is cut, and what is no number may be long as well.
  const auto split = read_tiktoken(put("split", std::string(39, 'a') + "\xc3\xa9" + std::string(99, 'a'))).error();
  EXPECT_NE(split.detail.find(std::string(39, 'a') + "...\""), std::string::npos) << split.detail;
  EXPECT_EQ(split.hint, "");
  const auto tokenizer =
      read_vocabulary(put("t.json", R"({"model":{"vocab":")" + std::string(9999, 'v') + R"("}})"), vocab);
  EXPECT_LT(tokenizer.error().detail.size(), 300u);
}

TEST_F(BpeFiles, DamageIsNamed) {
  const std::string merges = put("merges.txt", "#version: 0.2\na b\nb c\n");
  const std::string vocab = put("vocab.json", R"({"a":0,"b":1,"ab":2})");
  EXPECT_EQ(read_vocabulary(vocab, merges).error().detail, merges + ": line 3 merges \"b c\", of which " + vocab +
                                                               " does not have all three tokens: the two files do not "
                                                               "belong together");
  EXPECT_EQ(read_vocabulary(put("1", "[1]"), merges).error().detail,
            folder_ + "/1: is no JSON object of tokens and their numbers");
  EXPECT_EQ(read_vocabulary(put("2", R"({"a":0,"b":5})"), merges).error().detail,
            folder_ + "/2: token \"b\" has number 5, expected 0 to 1");
  EXPECT_EQ(read_vocabulary(put("3", R"({"a":0,"b":0})"), merges).error().detail,
            folder_ + "/3: number 0 is given to two tokens, one is \"b\"");
  EXPECT_EQ(read_vocabulary(vocab, put("4", "a\n")).error().detail,
            folder_ + "/4: line 1 is \"a\", expected two tokens");
  const auto few = bpe_tokenizer(read_vocabulary(vocab, put("5", "a b\n")).or_throw(), kPattern);
  EXPECT_EQ(few.error().detail, "the vocabulary has no token for byte 0");
}

}  // namespace
}  // namespace tutti
