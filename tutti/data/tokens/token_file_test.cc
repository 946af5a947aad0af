#include "tutti/data/tokens/token_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tutti/data/tokens/index_format.h"
#include "tutti/data/tokens/token_writer.h"

namespace tutti {
namespace {

class TokenFiles : public testing::Test {
 protected:
  TokenFiles() { std::filesystem::create_directories(folder_); }
  ~TokenFiles() override { std::filesystem::remove_all(folder_); }
  std::string prefix() const { return folder_ + "/text"; }

  // Documents [3, 2, 2]: the example of Megatron-LM's own tests; the second one has two sequences.
  void write(TokenType type = TokenType::kU16) {
    auto writer = TokenWriter::create(prefix(), type).or_throw();
    const std::vector<std::vector<std::int32_t>> sequences = {{1, 2, 3}, {4}, {5}, {60, 7}};
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      writer.add_sequence(sequences[i]).or_throw();
      if (i != 1) writer.end_document();
    }
    writer.finish().or_throw();
  }
  std::string bytes(const char* end) const {
    std::ifstream file(prefix() + end, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void put(const char* end, const std::string& bytes) const {
    std::ofstream(prefix() + end, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::string refusal() const {
    const auto file = TokenFile::open(prefix());
    return file.ok() ? "none" : file.error().detail;
  }

  const std::string folder_ = testing::TempDir() + "tutti_tokens_" + std::to_string(::getpid());
};

TEST_F(TokenFiles, AreAsMegatronWritesThem) {
  write();
  EXPECT_EQ(bytes(".bin"), std::string("\1\0\2\0\3\0\4\0\5\0\x3c\0\7\0", 14));
  const std::string index = bytes(".idx");
  EXPECT_EQ(index.size(), 34 + 4 * 12 + 4 * 8u);
  EXPECT_EQ(index.substr(0, 34), std::string("MMIDIDX\0\0"
                                             "\1\0\0\0\0\0\0\0"
                                             "\x08"
                                             "\4\0\0\0\0\0\0\0"
                                             "\4\0\0\0\0\0\0\0",
                                             34));
  EXPECT_EQ(index.substr(34, 16), std::string("\3\0\0\0\1\0\0\0\1\0\0\0\2\0\0\0", 16));
  EXPECT_EQ(index.substr(34 + 16 + 8, 8), std::string("\6\0\0\0\0\0\0\0", 8));   // the second sequence's offset
  EXPECT_EQ(index.substr(34 + 48 + 16, 8), std::string("\3\0\0\0\0\0\0\0", 8));  // the third document's first sequence
}

TEST_F(TokenFiles, ReadWhatWasWrittenInEveryType) {
  for (const TokenType type :
       {TokenType::kU8, TokenType::kI8, TokenType::kI16, TokenType::kU16, TokenType::kI32, TokenType::kI64}) {
    write(type);
    const TokenFile file = TokenFile::open(prefix()).or_throw();
    EXPECT_EQ(file.type(), type);
    EXPECT_EQ(file.sequences(), 4);
    EXPECT_EQ(file.documents(), 3);
    EXPECT_EQ(file.tokens(), 7);
    EXPECT_EQ(file.document_begins()[1], 1);
    EXPECT_EQ(file.document_begins()[3], 4);
    std::vector<std::int64_t> two(2);
    file.read(3, 0, two);
    EXPECT_EQ(two, (std::vector<std::int64_t>{60, 7}));
    file.read(0, 1, two);
    EXPECT_EQ(two, (std::vector<std::int64_t>{2, 3}));
    EXPECT_THROW(file.read(0, 2, two), Exception);
    EXPECT_THROW(file.read(4, 0, two), Exception);
    for (const char* end : {".bin", ".idx"}) std::filesystem::remove(prefix() + end);
  }
}

TEST_F(TokenFiles, FindTheFirstTokenBeyondAVocabulary) {
  for (const TokenType type :
       {TokenType::kU8, TokenType::kI8, TokenType::kI16, TokenType::kI32, TokenType::kI64, TokenType::kU16}) {
    write(type);
    const auto file = TokenFile::open(prefix()).or_throw();
    EXPECT_FALSE(file.beyond(61, 1 << 30)) << name(type);
    const auto found = file.beyond(60, 1 << 30);
    ASSERT_TRUE(found) << name(type);
    EXPECT_EQ(found->token, 60);
    EXPECT_EQ(found->sequence, 3);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
}

TEST_F(TokenFiles, FindATokenBelow0) {
  write(TokenType::kI16);
  std::string tokens = bytes(".bin");
  tokens[8] = tokens[9] = '\xff';
  put(".bin", tokens);
  const auto found = TokenFile::open(prefix()).or_throw().beyond(100, 1 << 20);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->token, -1);
  EXPECT_EQ(found->sequence, 2);
}

// Sequences of 0.7 MiB, of which every third MiB is looked at: the first and the fourth.
TEST_F(TokenFiles, LookAtAnEvenPartOfWhatIsLong) {
  constexpr std::size_t kMiB = 1 << 20, kLength = kMiB * 7 / 10;
  const auto found_at = [&](std::size_t at, std::uint64_t most_bytes) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::vector<std::int32_t> tokens(kLength * 9);
    tokens[at] = 200;
    auto writer = TokenWriter::create(prefix(), TokenType::kU8).or_throw();
    for (std::size_t begin = 0; begin < tokens.size(); begin += kLength) {
      writer.add_sequence(std::span(tokens).subspan(begin, kLength)).or_throw();
      writer.end_document();
    }
    writer.finish().or_throw();
    const auto found = TokenFile::open(prefix()).or_throw().beyond(200, most_bytes);
    return found ? found->sequence : -1;
  };
  EXPECT_EQ(found_at(kMiB - 1, 3 * kMiB), 1);
  EXPECT_EQ(found_at(kMiB, 3 * kMiB), -1);
  EXPECT_EQ(found_at(kMiB, 7 * kMiB), 1) << "all of it";
  EXPECT_EQ(found_at(3 * kMiB - 1, 3 * kMiB), -1);
  EXPECT_EQ(found_at(3 * kMiB, 3 * kMiB), 4);
  EXPECT_EQ(found_at(4 * kMiB - 1, 3 * kMiB), 5);
}

TEST_F(TokenFiles, ATokenMustFit) {
  auto writer = TokenWriter::create(prefix(), TokenType::kU16).or_throw();
  const std::vector<std::int32_t> tokens = {65536};
  const Status status = writer.add_sequence(tokens);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().detail, prefix() + ".bin: token 65536 does not fit into u16");
}

TEST_F(TokenFiles, NothingIsLeftOfAWriterThatDidNotFinish) {
  TokenWriter::create(prefix(), TokenType::kU16).or_throw().add_sequence(std::vector<std::int32_t>{1}).or_throw();
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  write();
  EXPECT_EQ(TokenWriter::create(prefix(), TokenType::kU16).error().detail, prefix() + ".bin is there already");
}

TEST_F(TokenFiles, DamageIsNamedToTheByte) {
  write();
  const std::string index = bytes(".idx"), path = prefix() + ".idx";
  const auto with = [&](std::size_t at, const std::string& change) {
    std::string changed = index;
    changed.replace(at, change.size(), change);
    put(".idx", changed);
    return refusal();
  };
  EXPECT_EQ(with(3, "X"), path +
                              ": does not begin with MMIDIDX: it is no index of tokens as Megatron-LM and `tutti data "
                              "tokenize` write it");
  EXPECT_EQ(with(9, "\2"), path + ": is of version 2, expected 1");
  EXPECT_EQ(with(17, "\6"), path + ": has tokens of type 6 (byte 17), which is no whole number");
  EXPECT_EQ(with(18, "\7"), path +
                                ": has 114 bytes, too few for its 7 sequences and 4 entries of documents: it was cut "
                                "off, or is damaged");
  EXPECT_EQ(with(25, "\xff").substr(0, path.size() + 15), path + ": has 114 bytes");
  EXPECT_EQ(with(37, "\x80"), path + ": sequence 0 has a length of -2147483645 (byte 34)");
  EXPECT_EQ(with(34, "\x09"),
            path + ": sequence 0 is 18 bytes from byte 0 on (byte 50), but " + prefix() + ".bin has 14");
  EXPECT_EQ(with(58, "\xf0"),
            path + ": sequence 1 is 2 bytes from byte 240 on (byte 58), but " + prefix() + ".bin has 14");
  EXPECT_EQ(with(82 + 8, "\5"), path + ": document 1 begins at sequence 5 (byte 90), expected ascending ones up to 4");
  put(".idx", index.substr(0, 20));
  EXPECT_EQ(refusal(), path + ": has 20 bytes, fewer than the 34 of a header");
  put(".idx", index);
  put(".bin", "\1");
  EXPECT_EQ(refusal(), path + ": sequence 0 is 6 bytes from byte 0 on (byte 50), but " + prefix() + ".bin has 1");
  std::filesystem::remove(prefix() + ".bin");
  EXPECT_NE(refusal().find(prefix() + ".bin"), std::string::npos);
}

// Whatever byte is changed, a file that opens can be read to its end.
TEST_F(TokenFiles, NoFlippedByteLeadsOutside) {
  write();
  const std::string index = bytes(".idx");
  std::vector<std::int64_t> tokens;
  for (std::size_t at = 0; at < index.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = index;
      changed[at] = char(changed[at] ^ 1 << bit);
      put(".idx", changed);
      const auto file = TokenFile::open(prefix());
      if (!file.ok()) continue;
      for (std::int64_t i = 0; i < file->sequences(); ++i) {
        tokens.resize(std::size_t(file->length(i)));
        file->read(i, 0, tokens);
      }
    }
}

}  // namespace
}  // namespace tutti
