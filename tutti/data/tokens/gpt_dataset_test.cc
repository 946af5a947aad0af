// Datasets of one file, of a blend, of files for each part and made up; and what is said where there is no data.
#include "tutti/data/tokens/gpt_dataset.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "tutti/data/tokens/token_check.h"
#include "tutti/data/tokens/token_writer.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GptData : public testing::Test {
 protected:
  GptData() { std::filesystem::create_directories(folder_); }
  ~GptData() override { std::filesystem::remove_all(folder_); }

  // Documents of 8 tokens, all of them `first`, `first` + 1, ...
  std::string write(const std::string& name, int documents, std::int32_t first) {
    auto writer = TokenWriter::create(folder_ + "/" + name, TokenType::kI32).or_throw();
    for (int document = 0; document < documents; ++document) {
      writer.add_sequence(std::vector<std::int32_t>(8, first + document)).or_throw();
      writer.end_document();
    }
    writer.finish().or_throw();
    return folder_ + "/" + name;
  }
  static std::vector<std::int64_t> sample(const GptDataset& dataset, std::int64_t i, std::size_t length = 5) {
    std::vector<std::int64_t> tokens(length);
    dataset.read(i, tokens);
    return tokens;
  }
  static std::string refusal(const GptDataOptions& options) {
    const auto opened = open_gpt_datasets(options);
    return opened.ok() ? "accepted" : opened.error().detail + " | " + opened.error().hint;
  }

  const std::string folder_ = testing::TempDir() + "tutti_datasets_" + std::to_string(::getpid());
};

TEST_F(GptData, IsDividedByDocuments) {
  GptDataOptions options{.split = "8,1,1", .sequence_length = 4, .vocabulary = 100, .samples = {30, 2, 2}};
  options.divided.prefixes = {write("text", 10, 0)};
  const auto datasets = open_gpt_datasets(options).or_throw();
  std::set<std::int64_t> seen[3];
  for (int part = 0; part < 3; ++part) {
    ASSERT_TRUE(datasets[std::size_t(part)]);
    EXPECT_GE(datasets[std::size_t(part)]->size(), options.samples[std::size_t(part)]);
    for (std::int64_t i = 0; i < options.samples[std::size_t(part)]; ++i)
      for (const auto token : sample(*datasets[std::size_t(part)], i)) seen[part].insert(token);
  }
  EXPECT_EQ(seen[0], (std::set<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_THAT(seen[1], ElementsAre(8));
  EXPECT_THAT(seen[2], ElementsAre(9));
}

TEST_F(GptData, BlendsByWeight) {
  GptDataOptions options{.sequence_length = 4, .vocabulary = 100, .samples = {40, 0, 0}};
  const std::string words[] = {"3", write("a", 4, 0), "1", write("b", 4, 50)};
  options.apart[0] = parse_blend(words).or_throw();
  EXPECT_THAT(options.apart[0].weights, ElementsAre(3, 1));
  const auto datasets = open_gpt_datasets(options).or_throw();
  EXPECT_FALSE(datasets[1]) << "is not needed";
  ASSERT_EQ(datasets[0]->size(), 40);
  int of_b = 0;
  for (std::int64_t i = 0; i < 40; ++i) of_b += sample(*datasets[0], i)[0] >= 50;
  EXPECT_EQ(of_b, 10);
}

TEST_F(GptData, MadeUpSamplesCountUp) {
  const GptDataOptions options{.mock = true, .sequence_length = 4, .vocabulary = 7, .samples = {100, 10, 0}};
  const auto datasets = open_gpt_datasets(options).or_throw();
  std::set<std::vector<std::int64_t>> different;
  for (std::int64_t i = 0; i < 100; ++i) {
    const auto tokens = sample(*datasets[0], i);
    for (std::size_t k = 1; k < tokens.size(); ++k) EXPECT_EQ(tokens[k], (tokens[k - 1] + 1) % 7);
    different.insert(tokens);
  }
  EXPECT_EQ(different.size(), 7u);
  EXPECT_EQ(sample(*datasets[0], 5), sample(*open_gpt_datasets(options).or_throw()[0], 5));
}

TEST_F(GptData, SaysWhatIsMissing) {
  GptDataOptions options{.sequence_length = 4, .vocabulary = 100, .samples = {1, 1, 0}};
  EXPECT_THAT(refusal(options), HasSubstr("there is no data for training"));
  options.divided.prefixes = {write("one", 1, 0)};
  EXPECT_THAT(refusal(options),
              AllOf(HasSubstr("is for validation, which needs 1 samples: it has 1 and --split is 969, 30, 1"),
                    HasSubstr("--eval-iters 0")));
  options.divided.prefixes = {folder_ + "/nowhere"};
  EXPECT_THAT(refusal(options), HasSubstr("nowhere.idx"));
  const std::string words[] = {"1", "a", "b", "c"};
  const auto blend = parse_blend(words);
  ASSERT_FALSE(blend.ok());
  EXPECT_THAT(blend.error().detail, HasSubstr("'b' in '1 a b c' is no weight"));
}

TEST_F(GptData, ATokenBeyondTheVocabularyIsNamed) {
  GptDataOptions options{.split = "1", .sequence_length = 4, .vocabulary = 3, .samples = {8, 0, 0}};
  options.divided.prefixes = {write("text", 4, 0)};
  const auto datasets = open_gpt_datasets(options).or_throw();
  std::string words;
  for (std::int64_t i = 0; i < 7; ++i) {
    try {
      (void)sample(*datasets[0], i);
    } catch (const Exception& failure) {
      words = failure.error().detail;
    }
  }
  EXPECT_THAT(words, AllOf(HasSubstr("text.bin has the token 3 (in sample "), HasSubstr("the vocabulary has 3")));
}

TEST_F(GptData, ATokenBeyondTheVocabularyIsFoundWithoutReadingSamples) {
  GptDataOptions options{.vocabulary = 3, .samples = {1}};
  const auto refused = [&] {
    const Status checked = check_tokens(options);
    return checked.ok() ? "accepted" : checked.error().detail + " | " + checked.error().hint;
  };
  options.divided.prefixes = {write("low", 3, 0), write("text", 4, 0)};
  EXPECT_THAT(refused(), AllOf(HasSubstr("text.bin has the token 3 (in sequence 3), and the vocabulary has 3 | "),
                               HasSubstr("the --vocab-size that the file was made with")));
  options.vocabulary = 4;
  EXPECT_EQ(refused(), "accepted");
  options.divided.prefixes.clear();
  options.apart[1].prefixes = {write("high", 2, 50)};
  EXPECT_EQ(refused(), "accepted") << "validation is not needed";
  options.samples[1] = 1;
  EXPECT_THAT(refused(), HasSubstr("high.bin has the token 50 (in sequence 0)"));
}

}  // namespace
}  // namespace tutti
