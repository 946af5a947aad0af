#include "tutti/models/dlrm/sources.h"

#include "tutti/data/clicks/random.h"

namespace tutti::dlrm {
namespace {

// Tests on the data that it was trained on would say nothing, so they have a seed of their own.
constexpr std::uint32_t kTestSeed = 1;

Result<std::unique_ptr<ClickSource>> random_clicks(const Options& options, std::int64_t batch, std::uint32_t seed) {
  const auto& data = options.data;
  RandomClickOptions made;
  made.shape.dense_features = int(options.architecture.mlp_bottom.front());
  made.shape.rows = options.architecture.embedding_size;
  made.samples = data.size;
  made.batch_size = batch;
  made.batches = data.num_batches;
  made.indices_per_lookup = data.indices_per_lookup;
  made.fixed_indices = data.indices_per_lookup_fixed;
  made.round_targets = data.round_targets;
  made.distribution =
      data.distribution == RandomDistribution::kUniform ? IndexDistribution::kUniform : IndexDistribution::kGaussian;
  made.minimum = data.minimum;
  made.maximum = data.maximum;
  made.mean = data.mu;
  made.deviation = data.sigma;
  made.seed = seed;
  return make_random_clicks(std::move(made));
}

}  // namespace

Result<Sources> open_sources(const Options& options) {
  const auto& training = options.training;
  const auto test_batch = training.test_batch > 0 ? training.test_batch : training.batch;
  const auto seed = std::uint32_t(training.seed);
  Sources made;
  switch (options.data.generation) {
    case DataGeneration::kRandom:
      made.train = TUTTI_TRY(random_clicks(options, training.batch, seed));
      made.test = TUTTI_TRY(random_clicks(options, test_batch, seed + kTestSeed));
      made.where = "the random data";
      return made;
    case DataGeneration::kSynthetic:
    case DataGeneration::kDataset:
      break;
  }
  return Error{.code = Code::kUnsupported, .detail = "only random data is here"};
}

}  // namespace tutti::dlrm
