#include "tutti/data/tokens/gpt_dataset.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <numeric>

#include "tutti/base/random.h"
#include "tutti/base/text.h"
#include "tutti/data/tokens/gpt_samples.h"
#include "tutti/data/tokens/splits.h"
#include "tutti/data/tokens/token_file.h"

namespace tutti {
namespace {

constexpr const char* kPartNames[] = {"training", "validation", "test"};
// Of a dataset in a blend a little more than its share is prepared, so that rounding never asks for a sample too many.
constexpr double kSpare = 1.005;

using File = std::shared_ptr<const TokenFile>;

class FileDataset : public GptDataset {
 public:
  FileDataset(File file, SplitRange range, std::int64_t vocabulary, const GptSampleOptions& options)
      : file_(std::move(file)), samples_(*file_, range.begin, range.end, options), vocabulary_(vocabulary) {}
  std::int64_t size() const override { return samples_.size(); }
  void read(std::int64_t i, std::span<std::int64_t> into) const override {
    samples_.read(i, into);
    for (const std::int64_t token : into)
      if (token < 0 || token >= vocabulary_)
        throw Exception(
            invalid_argument(fmt::format("{}.bin has the token {} (in sample {}), and the vocabulary has {}",
                                         file_->prefix(), token, i, vocabulary_),
                             "give the tokenizer or the --vocab-size that the file was made with"));
  }

 private:
  const File file_;
  const GptSamples samples_;
  const std::int64_t vocabulary_;
};

class BlendedDataset : public GptDataset {
 public:
  BlendedDataset(std::vector<std::unique_ptr<GptDataset>> parts, std::span<const double> weights, std::int64_t samples)
      : parts_(std::move(parts)), index_(blend(weights, samples)) {}
  std::int64_t size() const override { return std::int64_t(index_.dataset.size()); }
  void read(std::int64_t i, std::span<std::int64_t> into) const override {
    parts_[std::size_t(index_.dataset[std::size_t(i)])]->read(index_.sample[std::size_t(i)], into);
  }

 private:
  const std::vector<std::unique_ptr<GptDataset>> parts_;
  const BlendIndex index_;
};

class MockDataset : public GptDataset {
 public:
  MockDataset(DataPart part, std::int64_t samples, const GptDataOptions& options)
      : part_(part), samples_(samples), vocabulary_(options.vocabulary), seed_(options.seed) {}
  std::int64_t size() const override { return samples_; }
  void read(std::int64_t i, std::span<std::int64_t> into) const override {
    const auto first = seed_at(seed_, {.step = i, .replica = std::int64_t(part_), .layer = 1});
    std::int64_t token = std::int64_t(first % std::uint64_t(vocabulary_));
    for (std::int64_t& next : into) {
      next = token;
      token = token + 1 == vocabulary_ ? 0 : token + 1;
    }
  }

 private:
  const DataPart part_;
  const std::int64_t samples_, vocabulary_;
  const std::uint64_t seed_;
};

// Each file once, however often it is named.
class Files {
 public:
  Result<File> open(const std::string& prefix) {
    auto& file = files_[prefix];
    if (!file) file = std::make_shared<const TokenFile>(TUTTI_TRY(TokenFile::open(prefix)));
    return file;
  }

 private:
  std::map<std::string, File> files_;
};

Result<std::unique_ptr<GptDataset>> open_part(Files& files, const TokenBlend& blend, DataPart part, bool is_divided,
                                              const GptDataOptions& options) {
  const std::int64_t samples = options.samples[std::size_t(part)];
  std::vector<File> opened;
  std::vector<SplitRange> ranges;
  std::vector<double> weights = blend.weights;
  for (const std::string& prefix : blend.prefixes) {
    opened.push_back(TUTTI_TRY(files.open(prefix)));
    const std::int64_t all = opened.back()->sequences();
    ranges.push_back(is_divided ? split_ranges(options.split, all)[std::size_t(part)] : SplitRange{0, all});
    if (blend.weights.empty()) weights.push_back(double(opened.back()->tokens()));
    if (ranges.back().begin == ranges.back().end)
      return invalid_argument(
          fmt::format("no document of {} is for {}, which needs {} samples: it has {}{}", prefix,
                      kPartNames[std::size_t(part)], samples, all,
                      is_divided ? fmt::format(" and --split is {}", options.split) : std::string()),
          is_divided ? "another --split, more documents, or --eval-iters 0" : "");
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (!(total > 0)) return invalid_argument("the weights of --data-path are all 0, or the files have no tokens");
  std::vector<std::unique_ptr<GptDataset>> parts;
  for (std::size_t i = 0; i < opened.size(); ++i) {
    const double share = std::ceil(double(samples) * weights[i] / total);
    parts.push_back(std::make_unique<FileDataset>(
        opened[i], ranges[i], options.vocabulary,
        GptSampleOptions{.sequence_length = options.sequence_length,
                         .samples = opened.size() == 1 ? samples : std::int64_t(std::ceil(share * kSpare)),
                         .seed = options.seed}));
  }
  if (parts.size() == 1) return std::move(parts[0]);
  return std::unique_ptr<GptDataset>(std::make_unique<BlendedDataset>(std::move(parts), weights, samples));
}

}  // namespace

Result<TokenBlend> parse_blend(std::span<const std::string> words) {
  TokenBlend blend;
  const bool has_weights = words.size() > 1 && words.size() % 2 == 0 && parse_double(words[0]).has_value();
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!has_weights || i % 2 == 1) {
      blend.prefixes.push_back(words[i]);
      continue;
    }
    const auto weight = parse_double(words[i]);
    if (!weight || !std::isfinite(*weight) || *weight < 0)
      return invalid_argument(
          fmt::format("'{}' in '{}' is no weight", words[i], join(words, " ")),
          "--data-path takes PREFIX, or WEIGHT PREFIX WEIGHT PREFIX ..., with weights of 0 or more");
    blend.weights.push_back(*weight);
  }
  return blend;
}

Result<GptDatasets> open_gpt_datasets(const GptDataOptions& options) {
  GptDatasets datasets;
  Files files;
  try {
    for (const DataPart part : {DataPart::kTrain, DataPart::kValidation, DataPart::kTest}) {
      const auto at = std::size_t(part);
      if (options.samples[at] == 0) continue;
      const bool is_divided = !options.divided.prefixes.empty();
      const TokenBlend& blend = is_divided ? options.divided : options.apart[at];
      if (options.mock) {
        datasets[at] = std::make_unique<MockDataset>(part, options.samples[at], options);
      } else if (!blend.prefixes.empty()) {
        datasets[at] = TUTTI_TRY(open_part(files, blend, part, is_divided, options));
      } else {
        return invalid_argument(fmt::format("there is no data for {}", kPartNames[at]),
                                "give --data-path, or a path for each part");
      }
    }
  } catch (const Exception& failure) {
    return failure.error();
  }
  return datasets;
}

}  // namespace tutti
