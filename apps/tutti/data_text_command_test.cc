// `tutti data text`, `bpe` and `tokenize` as a user types them.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/launch/running.h"
#include "tutti/data/tokens/token_file.h"

namespace tutti {
namespace {

using testing::Ended;
using testing::Folder;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::run;

TEST(DataText, BecomesTokensThatWereLearnedFromIt) {
  const Folder folder;
  const std::string text = folder.path() + "/text", bpe = folder.path() + "/bpe", out = folder.path() + "/out";
  const Ended made = run({"data", "text", "--output", text, "--bytes", "20K", "--length", "1000"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr(text + ": 21 documents, 20.5 KiB\nleast loss: 1.1369 nats a letter; "));
  const Ended learned = run({"data", "bpe", text, "--output", bpe, "--vocab-size", "300"});
  ASSERT_EQ(learned.code, 0) << learned.err;
  EXPECT_THAT(learned.out, MatchesRegex("300 tokens from [0-9]+ different pieces of 20.5 KiB, in .*\n"));
  const Ended ended = run({"data", "tokenize", text, "--documents", "line", "--output", out, "--vocab-file",
                           bpe + "/vocab.json", "--merge-file", bpe + "/merges.txt", "--append-eod"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, MatchesRegex("21 documents, [0-9]+ tokens of 300 \\([12].[0-9]+ bytes a token\\)\n(.|\n)*"));
  const TokenFile file = TokenFile::open(out).or_throw();
  EXPECT_EQ(file.documents(), 21);
  std::vector<std::int64_t> last(1);
  file.read(0, file.length(0) - 1, last);
  EXPECT_EQ(last[0], 299);
  EXPECT_EQ(run({"data", "tokenize", text, "--output", out}).err,
            "tutti data tokenize: " + out + ".bin is there already\nhint: remove it, or choose another name\n");
  EXPECT_EQ(run({"data", "bpe", text, "--output", bpe}).code, 2);
}

// Its ids are those of Megatron-LM: behind 1000 special tokens, of which </s> ends a document.
TEST(DataText, TakesTheFileOfMegatronsTikTokenizer) {
  const Folder folder;
  const std::string text = folder.path() + "/text", model = folder.path() + "/tokens.json",
                    out = folder.path() + "/out";
  std::ofstream(text) << "ab !\u180e";
  constexpr char k64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::ofstream file(model);
  for (int byte = 0; byte < 256; ++byte)
    file << (byte == 0 ? "[" : ",\n") << R"({"rank": )" << byte << R"(, "token_bytes": ")" << k64[byte >> 2]
         << k64[(byte & 3) << 4] << R"(==", "token_str": ""})";
  file << R"(, {"rank": 256, "token_bytes": "YWI=", "token_str": "ab"}])" << std::flush;
  for (const char* const pattern : {"", "v1"}) {
    const Ended ended =
        run({"data", "tokenize", text, "--tokenizer-type", "TikTokenizer", "--tokenizer-model", model, "--output",
             out + pattern, "--append-eod", *pattern ? std::string("--tiktoken-pattern=") + pattern : "--threads=1"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_THAT(ended.out, HasSubstr("7 tokens of 1257 "));
    std::vector<std::int64_t> tokens(7);
    TokenFile::open(out + pattern).or_throw().read(0, 0, tokens);
    EXPECT_EQ(tokens, (std::vector<std::int64_t>{1256, 1032, 1033, 1225, 1160, 1142, 2}));
  }
  std::ofstream(model) << R"([{"token": "a"}])";
  const Ended other = run({"data", "tokenize", text, "--tokenizer-model", model, "--output", folder.path() + "/no"});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("tokens.json: entry 0 is {\"token\":\"a\"}, expected \"rank\": 0 and "));
}

TEST(DataText, MistakesAreSentences) {
  const Folder folder;
  const std::string text = folder.path() + "/text.jsonl", out = folder.path() + "/out";
  std::ofstream(text) << "{\"txt\": \"a\"}\n";
  const auto says = [&](std::vector<std::string> words, int code, const std::string& sentence) {
    words.insert(words.begin(), "data");
    const Ended ended = run(words);
    EXPECT_EQ(ended.code, code) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(sentence));
  };
  says({"tokenize"}, 2, "no input given");
  says({"tokenize", text}, 2, "--output PREFIX is missing");
  says({"tokenize", text, "--output", out}, 1, text + ": line 1 has no text under \"text\"");
  says({"tokenize", text, "--output", out, "--json-key", "txt", "--vocab-file", "v"}, 2, "--merge-file is missing");
  says({"tokenize", text, "--output", out, "--vocab-file", "v", "--tokenizer-model", "m"}, 2, "two tokenizers");
  says({"tokenize", text, "--output", out, "--tokenizer-type", "bytes"}, 2, "did you mean byte?");
  says({"tokenize", text, "--output", out, "--documents", "lines"}, 2, "did you mean line?");
  says({"tokenize", folder.path() + "/none", "--output", out}, 2, "cannot open " + folder.path() + "/none");
  says({"tokenize", text, "--output", folder.path() + "/no/out"}, 1, "cannot create " + folder.path() + "/no/out.bin");
  says({"bpe", text, "--output", out, "--vocab-size", "100"}, 2, "--vocab-size needs");
  says({"text", "--output", out, "--bytes", "much"}, 2, "--bytes needs a size such as 16M, not 'much'");
  EXPECT_FALSE(std::filesystem::exists(out + ".bin"));
}

}  // namespace
}  // namespace tutti
