#include "tutti/data/tokens/tokenize.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tutti/data/tokens/token_file.h"

namespace tutti {
namespace {

class Tokenize : public testing::Test {
 protected:
  Tokenize() { std::filesystem::create_directories(folder_); }
  ~Tokenize() override { std::filesystem::remove_all(folder_); }
  std::string put(const char* name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary | std::ios::trunc) << text;
    return folder_ + "/" + name;
  }
  // The documents as text, "|" after each.
  std::string documents(const std::vector<std::string>& paths, TextForm form, int threads = 2,
                        bool append_end = false) {
    auto documents = TextDocuments::open(paths, form, "text").or_throw();
    const auto tokenizer = byte_tokenizer();
    const std::string prefix = folder_ + "/out" + std::to_string(made_++);
    tokenize(documents, *tokenizer, prefix, append_end, {.threads = threads, .progress = {}}).or_throw();
    const TokenFile file = TokenFile::open(prefix).or_throw();
    std::string all;
    for (std::int64_t i = 0; i < file.sequences(); ++i) {
      std::vector<std::int64_t> tokens(std::size_t(file.length(i)));
      file.read(i, 0, tokens);
      for (const std::int64_t token : tokens) all += token == 256 ? std::string("<end>") : std::string(1, char(token));
      all += "|";
    }
    return all;
  }
  const std::string folder_ = testing::TempDir() + "tutti_tokenize_" + std::to_string(::getpid());
  int made_ = 0;
};

TEST_F(Tokenize, AllFormsOfText) {
  const std::string a = put("a", "one\ntwo\n\n\nthree"), b = put("b", "four\n");
  EXPECT_EQ(documents({a, b}, TextForm::kFile), "one\ntwo\n\n\nthree|four\n|");
  EXPECT_EQ(documents({a, b}, TextForm::kLine), "one|two|three|four|");
  EXPECT_EQ(documents({a, b}, TextForm::kParagraphs), "one\ntwo|\nthree|four\n|");
  const std::string lines =
      put("lines", "{\"text\": \"a\\nb\", \"id\": 1}\n\n{\"text\": \"\"}\n{\"text\": \"\\u00fc\"}");
  EXPECT_EQ(documents({lines}, TextForm::kJsonLines), "a\nb|\xc3\xbc|");
  EXPECT_EQ(documents({lines}, TextForm::kJsonLines, 1, true), "a\nb<end>|\xc3\xbc<end>|");
}

// Over several batches; the order of the documents is that of the text.
TEST_F(Tokenize, TheNumberOfThreadsDoesNotShow) {
  std::string text;
  for (int i = 0; text.size() < 9 << 20; ++i) text += "line " + std::to_string(i) + "\n";
  const std::string path = put("long", text);
  const std::string one = documents({path, path}, TextForm::kLine, 1);
  EXPECT_EQ(documents({path, path}, TextForm::kLine, 5), one);
  EXPECT_EQ(one.substr(0, 14), "line 0|line 1|");
}

TEST_F(Tokenize, MistakesAreSentences) {
  const auto refusal = [&](const std::string& path, TextForm form) {
    auto documents = TextDocuments::open({path}, form, "text").or_throw();
    const auto result = tokenize(documents, *byte_tokenizer(), folder_ + "/out", false, {.threads = 2, .progress = {}});
    return result.ok() ? "none" : result.error().detail;
  };
  const std::string lines = put("lines", "{\"text\": \"a\"}\n{\"txt\": \"b\"}\n"),
                    broken = put("broken", "\n{\"text\"\n");
  EXPECT_EQ(refusal(lines, TextForm::kJsonLines), lines + ": line 2 has no text under \"text\"");
  EXPECT_EQ(refusal(broken, TextForm::kJsonLines),
            broken + ": line 2 is no JSON: unexpected end of input; expected ':'");
  EXPECT_EQ(refusal(put("half", "{\"text\":\"\\ud800\"}\n"), TextForm::kJsonLines),
            folder_ +
                "/half: line 1 is no JSON: invalid string: surrogate U+D800..U+DBFF must be followed by "
                "U+DC00..U+DFFF");
  EXPECT_EQ(refusal(put("list", "[1]\n"), TextForm::kJsonLines), folder_ + "/list: line 1 is no JSON object");
  EXPECT_EQ(refusal(put("empty", "\n \n"), TextForm::kLine), "there is no document in the text that was given");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 5);  // nothing was left
  EXPECT_FALSE(TextDocuments::open({folder_ + "/none"}, TextForm::kLine, "").ok());
  EXPECT_FALSE(TextDocuments::open({}, TextForm::kLine, "").ok());
}

TEST_F(Tokenize, CountsWords) {
  auto documents = TextDocuments::open({put("a", "a b a\nb a")}, TextForm::kLine, "").or_throw();
  const WordCounts words = count_words(documents, "[a-z]", {.threads = 2, .progress = {}}).or_throw();
  EXPECT_EQ(words.counts().at("a"), 3u);
  EXPECT_EQ(words.counts().at("b"), 2u);
  EXPECT_EQ(words.counts().at(" "), 3u);
}

}  // namespace
}  // namespace tutti
