#include "tutti/models/dlrm/sources.h"

#include <fmt/format.h>

#include "tutti/data/clicks/mlperf.h"
#include "tutti/data/clicks/packed.h"
#include "tutti/data/clicks/random.h"
#include "tutti/data/clicks/synthetic.h"

namespace tutti::dlrm {
namespace {

using SourceResult = Result<std::unique_ptr<ClickSource>>;

// Tests on the data that it was trained on would say nothing, so random ones have a seed of their own.
constexpr std::uint32_t kTestSeed = 1;

template <class Made>
Made drawn(const Options& options, std::int64_t batch, std::uint32_t seed) {
  const auto& data = options.data;
  Made made;
  made.shape.dense_features = int(options.architecture.mlp_bottom.front());
  made.shape.rows = options.architecture.embedding_size;
  made.samples = data.size;
  made.batch_size = batch;
  made.batches = data.num_batches;
  made.indices_per_lookup = data.indices_per_lookup;
  made.fixed_indices = data.indices_per_lookup_fixed;
  made.round_targets = data.round_targets;
  made.seed = seed;
  return made;
}

SourceResult random_clicks(const Options& options, std::int64_t batch, std::uint32_t seed) {
  auto made = drawn<RandomClickOptions>(options, batch, seed);
  made.distribution = options.data.distribution == RandomDistribution::kUniform ? IndexDistribution::kUniform
                                                                                : IndexDistribution::kGaussian;
  made.minimum = options.data.minimum;
  made.maximum = options.data.maximum;
  made.mean = options.data.mu;
  made.deviation = options.data.sigma;
  return make_random_clicks(std::move(made));
}

SourceResult synthetic_clicks(const Options& options, std::int64_t batch, std::uint32_t seed) {
  auto made = drawn<SyntheticClickOptions>(options, batch, seed);
  made.trace_file = options.data.trace_file;
  made.padding = options.data.trace_padding;
  return make_synthetic_clicks(made);
}

SourceResult mlperf_clicks(const Options& options, const std::string& path, std::int64_t batch, bool shuffle) {
  MlperfClickOptions made{.path = path,
                          .rows = options.architecture.embedding_size,
                          .batch_size = batch,
                          .most_batches = options.data.num_batches,
                          .max_ind_range = options.data.max_ind_range};
  if (shuffle) made.shuffle_seed = std::uint64_t(options.training.seed);
  return open_mlperf_clicks(made);
}

SourceResult packed_clicks(const Options& options, ClickSplit split, std::int64_t batch) {
  return open_packed_clicks({.path = options.data.processed_file,
                             .split = split,
                             .batch_size = batch,
                             .most_batches = options.data.num_batches,
                             .max_ind_range = options.data.max_ind_range});
}

// Kaggle's text is cut into 7 days, Terabyte's comes as 24.
Status check_days(const Options& options) {
  if (options.data.data_set.empty()) return {};
  const std::size_t expected = options.data.data_set == "kaggle" ? 7 : 24;
  const auto days = TUTTI_TRY(read_packed_header(options.data.processed_file)).days();
  if (days == expected) return {};
  return Error{.code = Code::kUsage,
               .detail = fmt::format("--data-set {} has {} days, but {} has {}", options.data.data_set, expected,
                                     options.data.processed_file, days),
               .hint = "leave --data-set out: the file says what it is"};
}

Result<Sources> open_dataset(const Options& options, std::int64_t test_batch) {
  const auto& data = options.data;
  Sources made{.where = data.processed_file};
  if (data.mlperf_binary) {
    made.train = TUTTI_TRY(mlperf_clicks(options, data.processed_file, options.training.batch, data.mlperf_shuffle));
    const auto& test = data.test_file.empty() ? data.processed_file : data.test_file;
    made.test = TUTTI_TRY(mlperf_clicks(options, test, test_batch, false));
    return made;
  }
  TUTTI_TRY(check_days(options));
  made.train = TUTTI_TRY(packed_clicks(options, ClickSplit::kTrain, options.training.batch));
  made.test = TUTTI_TRY(packed_clicks(options, ClickSplit::kTest, test_batch));
  return made;
}

}  // namespace

Result<Sources> open_sources(const Options& options) {
  const auto batch = options.training.batch;
  const auto test_batch = options.training.test_batch > 0 ? options.training.test_batch : batch;
  const auto seed = std::uint32_t(options.training.seed);
  Sources made;
  switch (options.data.generation) {
    case DataGeneration::kRandom:
      made.train = TUTTI_TRY(random_clicks(options, batch, seed));
      made.test = TUTTI_TRY(random_clicks(options, test_batch, seed + kTestSeed));
      made.where = "the random data";
      return made;
    case DataGeneration::kSynthetic:
      made.train = TUTTI_TRY(synthetic_clicks(options, batch, seed));
      made.test = TUTTI_TRY(synthetic_clicks(options, test_batch, seed + kTestSeed));
      made.where = "the synthetic data";
      return made;
    case DataGeneration::kDataset:
      return open_dataset(options, test_batch);
  }
  return made;
}

}  // namespace tutti::dlrm
