// A plain training loop, with a clock. What is timed is what the PyTorch program that we compare with times: from a
// barrier before the fourth step of an epoch (before its last, if it has fewer) to a barrier after its last.
#include "tutti/models/image/train.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <array>
#include <optional>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/checkpoint/replace_file.h"
#include "tutti/comm/collectives.h"
#include "tutti/data/sampler.h"
#include "tutti/models/image/models.h"
#include "tutti/models/image/same_options.h"
#include "tutti/parallel/ddp/data_parallel.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/tensor/checkpoint.h"
#include "tutti/tensor/compute.h"
#include "tutti/trace/step_line.h"

namespace tutti {
namespace {

constexpr std::int64_t kWarmUpSteps = 3;
constexpr std::size_t kEvaluationBatch = 500;
constexpr float kMean = 0.2860f, kDeviation = 0.3530f;  // of the training set, on a scale of 0 to 1

const char* name(Overlap overlap) {
  switch (overlap) {
    case Overlap::kAuto:
      return "auto";
    case Overlap::kOn:
      return "on";
    case Overlap::kOff:
      return "off";
  }
  return "";
}

const char* name(Sharding sharding) {
  switch (sharding) {
    case Sharding::kAuto:
      return "auto";
    case Sharding::kOn:
      return "on";
    case Sharding::kOff:
      return "off";
  }
  return "";
}

struct Batch {
  at::Tensor pictures;  // f32[n, 1, rows, columns], normalised
  at::Tensor labels;    // i64[n]
};

class Batches {
 public:
  explicit Batches(const ImageDataset& data) : data_(data) {
    for (std::size_t grey = 0; grey < normalised_.size(); ++grey)
      normalised_[grey] = (float(grey) / 255 - kMean) / kDeviation;
  }

  Batch make(const std::vector<std::int64_t>& samples) const {
    const auto count = std::int64_t(samples.size());
    const std::size_t pixels = data_.rows * data_.columns;
    Batch batch{at::empty({count, 1, std::int64_t(data_.rows), std::int64_t(data_.columns)}, at::kFloat),
                at::empty({count}, at::kLong)};
    float* out = batch.pictures.data_ptr<float>();
    auto* labels = batch.labels.data_ptr<std::int64_t>();
    for (auto sample : samples) {
      const auto* picture = data_.picture(std::size_t(sample));
      for (std::size_t i = 0; i < pixels; ++i) *out++ = normalised_[picture[i]];
      *labels++ = data_.labels[std::size_t(sample)];
    }
    return batch;
  }

 private:
  const ImageDataset& data_;
  std::array<float, 256> normalised_;
};

struct Score {
  double accuracy = 0, loss = 0;
};

// Each rank takes every world-size'th sample; counts and sums are added up, so no sample counts twice and none is left
// out.
Score evaluate(const Group& world, ImageModel& model, const ImageDataset& data) {
  const at::NoGradGuard no_grad;
  model.eval();
  const Batches batches(data);
  std::int64_t hits = 0;
  double loss = 0;
  const auto stride = std::size_t(world.size());
  for (std::size_t next = std::size_t(world.rank()); next < data.size();) {
    std::vector<std::int64_t> samples;
    for (; next < data.size() && samples.size() < kEvaluationBatch; next += stride)
      samples.push_back(std::int64_t(next));
    const auto batch = batches.make(samples);
    const auto scores = model.forward(batch.pictures);
    hits += scores.argmax(1).eq(batch.labels).sum().item<std::int64_t>();
    loss += at::nll_loss(scores, batch.labels, {}, at::Reduction::Sum).item<double>();
  }
  model.train();
  const double size = double(data.size());
  return {double(all_reduce(world, hits)) / size, all_reduce(world, loss) / size};
}

class Training {
 public:
  Training(const Group& world, const ImageDataset& data, const ImageTrainingOptions& options)
      : world_(world),
        options_(options),
        batches_(data),
        sampler_(data.size(), world, {.shuffle = true, .seed = options.seed}),
        model_(make_image_model(options.model, options.seed)),
        ddp_(model_, world, options.parallel),
        steps_per_epoch_(std::int64_t(sampler_.size() / options.batch_size)) {
    TUTTI_REQUIRE(steps_per_epoch_ > 0, "the batch size ", options.batch_size, " is larger than the ", sampler_.size(),
                  " samples of a rank");
    if (options.max_steps > 0) steps_per_epoch_ = std::min(steps_per_epoch_, options.max_steps);
    const SgdOptions sgd{.lr = options.lr, .momentum = options.momentum};
    const bool sharded = options.sharding == Sharding::kOn ||
                         (options.sharding == Sharding::kAuto && world.size() > 1 && world.nodes() == 1);
    if (sharded) {
      sharded_optimizer_.emplace(ddp_, sgd);
    } else {
      optimizer_.emplace(model_->parameters(), sgd);
    }
    line_.emplace(stderr, steps_per_epoch_ * options.epochs, world.rank() == 0 ? options.log_every : -1);
  }

  ImageTrainingResult fit() {
    const auto begin = now();
    for (int epoch = 0; epoch < options_.epochs; ++epoch) fit_epoch(epoch);
    line_->finish();
    result_.samples_per_s =
        result_.seconds > 0 ? double(result_.steps * options_.batch_size * world_.size()) / result_.seconds : 0;
    result_.exposed_percent = 100 * ddp_.stats().exposed_seconds / seconds_since(begin);
    return result_;
  }

  ImageModel& model() { return *model_; }

 private:
  void fit_epoch(int epoch) {
    sampler_.set_epoch(epoch);
    const std::int64_t warm_up = std::min(kWarmUpSteps, steps_per_epoch_ - 1);
    auto timed_from = now();
    for (std::int64_t step = 0; step < steps_per_epoch_; ++step) {
      if (step == warm_up) {
        barrier(world_);
        timed_from = now();
      }
      world_.step(epoch * steps_per_epoch_ + step + 1);
      line_->record(train_step());
    }
    barrier(world_);
    result_.seconds += seconds_since(timed_from);
    result_.steps += steps_per_epoch_ - warm_up;
  }

  StepRecord train_step() {
    const auto begin = now();
    const auto batch = batches_.make(sampler_.take(options_.batch_size));
    const double data_seconds = seconds_since(begin);
    ddp_.zero_grad();
    const auto loss = at::nll_loss(ddp_.forward(batch.pictures), batch.labels);
    loss.backward();
    if (sharded_optimizer_) {
      sharded_optimizer_->step();
    } else {
      ddp_.finish();
      optimizer_->step();
    }
    return {.loss = loss.item<double>(),
            .lr = options_.lr,
            .samples = double(options_.batch_size * std::size_t(world_.size())),
            .seconds = seconds_since(begin),
            .data_seconds = data_seconds,
            .exposed_seconds = ddp_.stats().last_exposed_seconds};
  }

  const Group& world_;
  const ImageTrainingOptions& options_;
  Batches batches_;
  DistributedSampler sampler_;
  std::shared_ptr<ImageModel> model_;
  DataParallel<ImageModel> ddp_;
  std::optional<ShardedOptimizer> sharded_optimizer_;  // one of the two
  std::optional<Sgd> optimizer_;
  std::int64_t steps_per_epoch_;
  std::optional<StepLine> line_;
  ImageTrainingResult result_;
};

}  // namespace

ImageTrainingResult train_image_model(const Group& world, const ImageDataset& train, const ImageDataset& test,
                                      const ImageTrainingOptions& options) {
  prepare_compute(world);
  check_same_options(world, {{"--model", options.model},
                             {"--batch-size", fmt::format("{}", options.batch_size)},
                             {"--epochs", fmt::format("{}", options.epochs)},
                             {"--max-steps", fmt::format("{}", options.max_steps)},
                             {"--lr", fmt::format("{}", options.lr)},
                             {"--momentum", fmt::format("{}", options.momentum)},
                             {"--seed", fmt::format("{}", options.seed)},
                             {"--overlap", name(options.parallel.overlap)},
                             {"--views", options.parallel.gradients_as_views ? "on" : "off"},
                             {"--sharded", name(options.sharding)},
                             {"--no-heap", options.parallel.heap_tensors ? "off" : "on"},
                             {"the number of training samples", fmt::format("{}", train.size())},
                             {"the number of test samples", fmt::format("{}", test.size())}})
      .or_throw();
  if (!options.save.empty() && world.rank() == 0)
    replaceable_file(options.save).status().or_throw();  // better before an hour of training than after it
  Training training(world, train, options);
  auto result = training.fit();
  const auto score = evaluate(world, training.model(), test);
  result.test_accuracy = score.accuracy;
  result.test_loss = score.loss;
  if (!options.save.empty() && world.rank() == 0) {
    save_module(training.model(), options.save,
                {{"model", options.model}, {"test_accuracy", fmt::format("{:.4f}", score.accuracy)}})
        .or_throw();
    log::info("weights saved to " + options.save);
  }
  return result;
}

}  // namespace tutti
