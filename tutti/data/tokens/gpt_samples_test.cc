// Compared with what numpy makes of Megatron-LM's description (gpt_dataset.py), computed with numpy 2.
#include "tutti/data/tokens/gpt_samples.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>

#include "tutti/base/error.h"
#include "tutti/base/random.h"
#include "tutti/data/tokens/token_writer.h"

namespace tutti {
namespace {

class GptSample : public testing::Test {
 protected:
  GptSample() { std::filesystem::create_directories(folder_); }
  ~GptSample() override { std::filesystem::remove_all(folder_); }

  // A document a sequence; the tokens count on through all of them.
  TokenFile file_of(const std::vector<std::int64_t>& sizes) {
    auto writer = TokenWriter::create(folder_ + "/text", TokenType::kI32).or_throw();
    std::int32_t next = 0;
    for (const std::int64_t size : sizes) {
      std::vector<std::int32_t> tokens;
      for (std::int64_t i = 0; i < size; ++i) tokens.push_back(next++);
      writer.add_sequence(tokens).or_throw();
      writer.end_document();
    }
    writer.finish().or_throw();
    return TokenFile::open(folder_ + "/text").or_throw();
  }

  const std::string folder_ = testing::TempDir() + "tutti_samples_" + std::to_string(::getpid());
};

template <class T>
std::vector<std::int64_t> list(std::span<const T> values) {
  return {values.begin(), values.end()};
}
std::vector<std::int64_t> list(std::span<const GptSamples::Position> places) {
  std::vector<std::int64_t> flat;
  for (const auto& place : places) flat.insert(flat.end(), {place.document, place.offset});
  return flat;
}
using List = std::vector<std::int64_t>;

TEST_F(GptSample, OfOneEpoch) {
  const TokenFile file = file_of({5, 3, 7, 1, 9});
  const GptSamples samples(file, 0, 5, {.sequence_length = 4, .samples = 0, .seed = 1234});
  EXPECT_EQ(samples.epochs(), 1);
  EXPECT_EQ(list(samples.document_index()), (List{4, 0, 1, 2, 3}));
  EXPECT_EQ(list(samples.sample_index()), (List{0, 0, 0, 4, 0, 8, 1, 3, 2, 2, 3, 3, 4, 0}));
  EXPECT_EQ(list(samples.shuffle_index()), (List{5, 2, 3, 1, 0, 4}));
  std::vector<std::int64_t> tokens(5);
  samples.read(1, tokens);  // sample 2 of the stream: the last token of document 4, then document 0
  EXPECT_EQ(tokens, (List{24, 0, 1, 2, 3}));
}

TEST_F(GptSample, OfSeveralEpochsTheLastByItself) {
  const TokenFile file = file_of({5, 3, 7, 1, 9});
  const GptSamples samples(file, 0, 5, {.sequence_length = 4, .samples = 20, .seed = 1234});
  EXPECT_EQ(samples.epochs(), 4);
  EXPECT_EQ(list(samples.document_index()), (List{3, 1, 0, 2, 4, 2, 0, 2, 1, 4, 3, 4, 0, 1, 3, 1, 0, 3, 4, 2}));
  EXPECT_EQ(list(samples.shuffle_index()),
            (List{7, 10, 4, 1, 11, 8, 3, 14, 13, 12, 17, 15, 2, 6, 9, 0, 5, 16, 22, 23, 19, 18, 21, 20}));
  const GptSamples fewer(file, 0, 5, {.sequence_length = 4, .samples = 14, .seed = 7});
  EXPECT_EQ(list(fewer.document_index()), (List{3, 0, 0, 2, 1, 4, 2, 3, 1, 4, 3, 1, 0, 4, 2}));
  EXPECT_EQ(list(fewer.shuffle_index()), (List{1, 5, 11, 8, 2, 3, 9, 10, 7, 0, 4, 6, 14, 15, 13, 16, 12, 17}));
}

TEST_F(GptSample, OfManyDocuments) {
  NumpyRandom random(3);
  List sizes;
  for (int i = 0; i < 200; ++i) sizes.push_back(random.integer(1, 300));
  const TokenFile file = file_of(sizes);
  const GptSamples samples(file, 0, 200, {.sequence_length = 64, .samples = 1000, .seed = 42});
  EXPECT_EQ(samples.size(), 1412);
  const auto crc = [](const void* data, std::size_t bytes) {
    return ::crc32(0, static_cast<const Bytef*>(data), uInt(bytes));
  };
  EXPECT_EQ(crc(samples.document_index().data(), samples.document_index().size_bytes()), 3692295079u);
  const List places = list(samples.sample_index());
  EXPECT_EQ(crc(places.data(), places.size() * 8), 1525481930u);
  EXPECT_EQ(crc(samples.shuffle_index().data(), samples.shuffle_index().size_bytes()), 779977881u);
  // Every sample is a run of the stream of documents.
  std::vector<std::int64_t> tokens(65);
  for (std::int64_t i = 0; i < samples.size(); ++i) samples.read(i, tokens);
  EXPECT_THROW(samples.read(1412, tokens), Exception);
}

TEST_F(GptSample, OfAPart) {
  const TokenFile file = file_of({5, 3, 7, 1, 9});
  const GptSamples samples(file, 1, 3, {.sequence_length = 3, .samples = 0, .seed = 1});
  std::vector<std::int64_t> tokens(4);
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    samples.read(i, tokens);
    for (const std::int64_t token : tokens) EXPECT_TRUE(token >= 5 && token < 15) << token;
  }
}

TEST_F(GptSample, TooLittleTextIsASentence) {
  const TokenFile file = file_of({2, 2});
  try {
    GptSamples(file, 0, 2, {.sequence_length = 4});
    FAIL();
  } catch (const Exception& error) {
    EXPECT_EQ(error.error().detail, folder_ +
                                        "/text: the 2 sequences of this part have 4 tokens, too few for one sample "
                                        "of 4 + 1: give more text, a shorter --seq-length, or another --split");
  }
  EXPECT_THROW(GptSamples(file, 0, 3, {.sequence_length = 1}), Exception);
  EXPECT_THROW(GptSamples(file, 0, 0, {.sequence_length = 1, .samples = 5}), Exception);
  EXPECT_EQ(GptSamples(file, 0, 2, {.sequence_length = 4, .samples = 5}).epochs(), 6);  // many times over
}

}  // namespace
}  // namespace tutti
