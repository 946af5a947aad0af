// A step has turns: one, or as many as passes are accumulated, or one for each logical rank of this process. A turn
// depends on the step, the (logical) rank and its number, never on the process.
#include "tutti/models/image/train.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/io/replace_file.h"
#include "tutti/checkpoint/tensor_file.h"
#include "tutti/comm/agree.h"
#include "tutti/data/loader.h"
#include "tutti/models/image/evaluation.h"
#include "tutti/models/image/models.h"
#include "tutti/models/image/pictures.h"
#include "tutti/models/image/replica_step.h"
#include "tutti/models/image/training_state.h"
#include "tutti/models/image/turns.h"
#include "tutti/parallel/data_parallel/hooks/compression.h"
#include "tutti/parallel/data_parallel/hooks/power_sgd.h"
#include "tutti/parallel/replica_check.h"
#include "tutti/tensor/compute.h"
#include "tutti/tensor/device_clock.h"
#include "tutti/tensor/device_errors.h"
#include "tutti/tensor/device_region.h"
#include "tutti/tensor/module_state.h"
#include "tutti/tensor/rank_device.h"
#include "tutti/tensor/seed.h"
#include "tutti/trace/region.h"
#include "tutti/training/phase_timer.h"
#include "tutti/training/trainer.h"

namespace tutti {
namespace {

bool is_sharded(const Group& world, const c10::Device& device, const ImageTrainingOptions& options) {
  if (options.sharding != Sharding::kAuto) return options.sharding == Sharding::kOn;
  if (options.sharded_stage > 1) return true;  // asked for: check_sizes() has refused where it cannot be
  const int logical = options.parallel.logical_ranks;
  const bool same_bits = logical == 0 || world.size() == 2;
  const bool may_wait = options.parallel.overlap != Overlap::kOn;  // for backward's end
  return world.size() > 1 && world.nodes() == 1 && device.is_cpu() && options.compression == Compression::kNone &&
         same_bits && may_wait;
}

bool computes_in_f16(const ImageTrainingOptions& options) { return options.parallel.autocast == DType::kF16; }

// That compute alike: the processes, or the logical ranks.
int ranks_of(const Group& world, const ImageTrainingOptions& options) {
  return options.parallel.logical_ranks > 0 ? options.parallel.logical_ranks : world.size();
}

Error refused(std::string detail, std::string hint) {
  return Error{.code = Code::kInvalidArgument, .detail = std::move(detail), .hint = std::move(hint)};
}

// What can be told before anything is made.
Status check_sizes(const Group& world, std::size_t samples, const ImageTrainingOptions& options) {
  const int ranks = ranks_of(world, options);
  const bool logical = options.parallel.logical_ranks > 0;
  if (logical && options.sharded_stage > 1 && world.size() > 2)
    return refused(
        fmt::format("--stage {} and --logical-ranks were both given, on {} processes", options.sharded_stage,
                    world.size()),
        "leave one of them out, or start 1 or 2 processes: a sharded optimizer of more adds the gradients in "
        "another order than the logical ranks");
  if (std::size_t(ranks) > samples)
    return refused(fmt::format("{} {}ranks, but only {} training samples", ranks, logical ? "logical " : "", samples),
                   "take as many ranks as there are samples, or fewer");
  const std::size_t of_a_rank = DistributedSampler(samples, 0, ranks).size();
  if (options.batch_size * std::size_t(options.accumulate) > of_a_rank)
    return refused(
        fmt::format("the batch size {}{} is larger than the {} samples of a rank", options.batch_size,
                    options.accumulate > 1 ? fmt::format(", {} times a step,", options.accumulate) : "", of_a_rank),
        options.accumulate > 1 || ranks > 1 ? "take a smaller --batch-size, fewer passes or fewer ranks"
                                            : "take a smaller --batch-size");
  return {};
}

// Better asked before an hour of training than after it.
Status check_places(const Group& world, const ImageTrainingOptions& options) {
  const std::string& folder = options.checkpoints.folder;
  if (!options.save.empty() && world.rank() == 0) TUTTI_TRY(of_option("--save", try_to_replace(options.save)));
  return folder.empty() ? Status() : of_option("--save-dir", make_writable_folder(folder));
}

std::shared_ptr<PowerSgd> make_power_sgd(const ImageTrainingOptions& options) {
  if (options.compression != Compression::kPowerSgd) return nullptr;
  return std::make_shared<PowerSgd>(PowerSgdOptions{.rank = 4, .start_step = 10});
}

DataParallelOptions parallel_options(const ImageTrainingOptions& options, const std::shared_ptr<PowerSgd>& power_sgd) {
  auto parallel = options.parallel;
  if (options.compression == Compression::kBF16) parallel.hook = bf16_compression();
  if (options.compression == Compression::kF16) parallel.hook = f16_compression();
  if (power_sgd) parallel.hook = power_sgd;
  if (scales_loss(options)) parallel.finite_check = FiniteCheck::kReport;
  return parallel;
}

std::shared_ptr<ImageModel> make_model(const ImageTrainingOptions& options, c10::Device device) {
  auto model = make_image_model(options.model, options.seed, options.dropout);
  model->to(device);
  return model;
}

class ImageTask final : public Task {
 public:
  ImageTask(const Group& world, const ImageDataset& train, const ImageDataset& test,
            const ImageTrainingOptions& options)
      : world_(world),
        options_(options),
        test_(test),
        device_(rank_device(world, options.device)),
        pictures_(train),
        model_(make_model(options, device_)),
        power_sgd_(make_power_sgd(options)),
        ddp_(model_, world, parallel_options(options, power_sgd_)),
        weights_(ddp_, {.rule = options.rule,
                        .sharded_stage = is_sharded(world, device_, options) ? options.sharded_stage : 0,
                        .clip_grad_norm = options.clip_grad_norm,
                        .scales_loss = scales_loss(options)}),
        loader_(batches(train.size()), MakeBatch{&pictures_}, {.threads = options.loader_threads}),
        check_(world, parameters_of(*model_), {.every = options.check_replicas}),
        state_(world, *model_, weights_, power_sgd_.get(), options, train.size()),
        phases_(device_clock(device_)) {
    const std::size_t samples = DistributedSampler(train.size(), 0, ranks()).size();
    steps_per_epoch_ = std::int64_t(samples / options.batch_size / std::size_t(options.accumulate));
  }

  std::int64_t steps_left() const override {
    const std::int64_t epochs = options_.epochs - progress_.epoch;
    return epochs > 0 ? epoch_steps_left() + (epochs - 1) * most_steps() : 0;
  }
  std::int64_t steps_left_in_epoch() const override {
    const std::int64_t left = epoch_steps_left();
    return left > 0 ? left : most_steps();
  }
  std::string nothing_left() const override {
    if (progress_.steps == 0) return {};
    return fmt::format("the checkpoint has already reached --epochs {}{}", options_.epochs,
                       options_.max_steps > 0 ? fmt::format(" of --max-steps {}", options_.max_steps) : "");
  }

  void run_part(const std::string& when, const std::function<void()>& part) override {
    report_device_errors(
        world_, when,
        [&] {
          return HeldMemory{parameters_of(*model_), weights_.optimizer_bytes()};
        },
        part);
  }

  TrainingStep step(std::int64_t number) override {
    progress_.steps = number;
    go_to_batch();
    TrainingStep made = train_step(number);
    progress_.position = loader_.state().ranks.front().position;
    ++progress_.epoch_steps;
    check_.step();
    return made;
  }

  Scalars evaluate(std::int64_t, bool) override {
    score_ = tutti::evaluate(world_, *model_, test_);
    return {{"test/accuracy", score_->accuracy}, {"test/loss", score_->loss}};
  }

  void finish(const TrainingResult& result) override {
    if (result.stopped || options_.save.empty() || world_.rank() != 0) return;
    save_tensors(options_.save, *model_,
                 {{"model", options_.model}, {"test_accuracy", fmt::format("{:.4f}", score_->accuracy)}})
        .or_throw();
    log::info("weights saved to " + options_.save);
  }

  void state(StateDict& state) override {
    state_.state(state, progress_);
    if (!state.loading()) return;
    state.after_load([this](const CheckpointReader&) {
      if (progress_.epoch_steps < 0) progress_.epoch_steps = steps_behind();
      return Status();
    });
  }

  ImageTrainingResult result(TrainingResult training) const {
    ImageTrainingResult made{.training = std::move(training)};
    made.exposed_percent = 100 * ddp_.stats().exposed_seconds / made.training.seconds;
    made.skipped = weights_.skipped();
    made.parallel = ddp_.stats();
    if (score_) {
      made.test_accuracy = score_->accuracy;
      made.test_loss = score_->loss;
    }
    return made;
  }

 private:
  int ranks() const { return ranks_of(world_, options_); }
  double samples_per_step() const {
    return double(options_.batch_size) * double(options_.accumulate) * double(ranks());
  }

  TurnBatches batches(std::size_t dataset_size) const {
    auto mine = ddp_.logical_ranks();
    if (mine.empty()) mine = {world_.rank()};
    std::vector<EpochBatches> made;
    for (const int rank : mine)
      made.emplace_back(DistributedSampler(dataset_size, rank, ranks(), {.shuffle = true, .seed = options_.seed}),
                        options_.batch_size);
    return TurnBatches(std::move(made));
  }

  // Of an epoch.
  std::int64_t most_steps() const {
    return options_.max_steps > 0 ? std::min(steps_per_epoch_, options_.max_steps) : steps_per_epoch_;
  }
  // Steps that the samples before progress_.position would have taken. A checkpoint of more ranks or of larger batches
  // may end within a step of this run: the step counts as made.
  std::int64_t steps_behind() const {
    const auto samples = std::uint64_t(samples_per_step());
    return std::int64_t((progress_.position + samples - 1) / samples);
  }
  // Of the current epoch; --max-steps counts the steps that were made.
  std::int64_t epoch_steps_left() const {
    std::int64_t left = steps_per_epoch_ - steps_behind();
    if (options_.max_steps > 0) left = std::min(left, options_.max_steps - progress_.epoch_steps);
    return std::max<std::int64_t>(0, left);
  }

  // Moves the loader to where the step begins, if it is not there: in a resumed run, and in each new epoch.
  void go_to_batch() {
    const bool next_epoch = epoch_steps_left() == 0;
    if (next_epoch) progress_ = {.steps = progress_.steps, .epoch = progress_.epoch + 1};
    if (in_epoch_ && !next_epoch) return;
    in_epoch_ = true;
    auto place = loader_.state();
    for (auto& rank : place.ranks) rank = {.epoch = progress_.epoch, .position = progress_.position};
    place.next = 0;
    loader_.restore(place);
  }

  TrainingStep train_step(std::int64_t step) {
    const auto begin = now();
    TrainingStep made{
        .lr = learning_rate(options_.rule), .samples = samples_per_step(), .may_overflow = computes_in_f16(options_)};
    ddp_.zero_grad();
    phases_.begin();
    double loss = 0;
    const auto logical = ddp_.logical_ranks();
    const int turns = logical.empty() ? options_.accumulate : int(logical.size());
    for (int turn = 0; turn < turns; ++turn) {
      if (!logical.empty()) {
        ddp_.begin_logical_rank(logical[std::size_t(turn)]);
        seed_all(options_.seed, {.step = step, .replica = logical[std::size_t(turn)]});
        loss += pass(1);
      } else {
        seed_all(options_.seed, {.step = step, .replica = world_.rank(), .micro_batch = turn});
        std::optional<DataParallel<ImageModel>::NoSync> accumulating;
        if (turn + 1 < turns) accumulating.emplace(ddp_.reducer());
        loss += pass(turns);
      }
    }
    weights_.average();
    phases_.lap(&TrainingStep::exposed);
    weights_.step();
    phases_.lap(&TrainingStep::optimizer);
    phases_.end(made);
    if (!phases_.is_of_gpu()) {  // some communication is within step(), and average() does more than wait
      const double finished = made.exposed + made.optimizer;
      made.exposed = ddp_.stats().last_exposed_seconds;
      made.optimizer = finished - made.exposed;
    }
    made.loss = mean_over_ranks(world_, loss) / turns;
    made.seconds = seconds_since(begin);
    return made;
  }

  // Forward and backward; `share`: of how many passes the mean is taken. The loss.
  double pass(int share) {
    std::optional<PictureBatch> batch;
    {
      const Region region("data");
      batch = loader_.next();
      TUTTI_REQUIRE(batch.has_value(), "the loader ended within an epoch");
    }
    phases_.lap(&TrainingStep::data);
    at::Tensor loss;
    {
      const DeviceRegion region("forward", device_);
      loss = at::nll_loss(ddp_.forward(copied_to(batch->pictures, device_)), copied_to(batch->labels, device_));
    }
    double value = 0;
    if (device_.is_cpu()) refuse_nan(value = loss.item<double>());
    phases_.lap(&TrainingStep::forward);
    {
      const DeviceRegion region("backward", device_);
      weights_.scaled(share > 1 ? loss / share : loss).backward();
    }
    phases_.lap(&TrainingStep::backward);
    // The host waits for a GPU here, which meanwhile has the kernels of backward() to run.
    if (!device_.is_cpu()) refuse_nan(value = loss.item<double>());
    return value;
  }

  // Before this rank steps; on the CPU before backward() averages its gradients with those of other ranks. A loss of
  // products in f16 may overflow: then the step is skipped.
  void refuse_nan(double loss) const {
    if (std::isfinite(loss) || computes_in_f16(options_)) return;
    Error error = loss_not_finite(world_, loss, fmt::format("step {}", progress_.steps), in_samples_of(world_),
                                  fmt::format("the learning rate is {}: a smaller one, or --clip-grad-norm, may help",
                                              learning_rate(options_.rule)));
    if (const std::string weight = first_weight_that_is_not_finite(); !weight.empty()) {
      error.detail += fmt::format(", because {} has had a NaN or an infinity since an earlier step", weight);
      if (!checks_gradients())
        error.hint +=
            "; --check-gradients before reports the first gradient with a NaN or an infinity, its weight and its rank";
    }
    throw Exception(std::move(error));
  }

  // A rank that is alone averages nothing, but where it steps its part of the weights, which is all of them.
  bool checks_gradients() const {
    const auto check = options_.parallel.finite_check;
    const bool averages = world_.size() > 1 || is_sharded(world_, device_, options_);
    return check == FiniteCheck::kReport || (check == FiniteCheck::kInReduction && averages);
  }

  std::string first_weight_that_is_not_finite() const {
    for (const auto& [name, weight] : parameters_of(*model_))
      if (!at::isfinite(weight).all().item<bool>()) return name;
    return {};
  }

  const Group& world_;
  const ImageTrainingOptions& options_;
  const ImageDataset& test_;
  const c10::Device device_;
  Pictures pictures_;
  std::shared_ptr<ImageModel> model_;
  const std::shared_ptr<PowerSgd> power_sgd_;  // null: gradients are compressed otherwise, or not
  DataParallel<ImageModel> ddp_;
  ReplicaStep weights_;
  struct MakeBatch {
    const Pictures* pictures;
    PictureBatch operator()(const std::vector<std::int64_t>& samples) const { return pictures->batch(samples); }
  };
  Loader<TurnBatches, MakeBatch> loader_;
  ReplicaCheck check_;
  ImageTrainingState state_;
  ImageProgress progress_;
  PhaseTimer phases_;
  std::int64_t steps_per_epoch_ = 0;
  bool in_epoch_ = false;  // the loader is where progress_ says
  std::optional<ImageScore> score_;
};

}  // namespace

bool scales_loss(const ImageTrainingOptions& options) {
  return options.compression == Compression::kF16 || computes_in_f16(options);
}

ImageTrainingResult train_image_model(const Group& world, const ImageDataset& train, const ImageDataset& test,
                                      const ImageTrainingOptions& options) {
  const Compute compute(world, {.heap_tensors = options.heap_tensors});
  agree_on(world, "the ranks have different data",
           {{"the number of training samples", fmt::format("{}", train.size())},
            {"the number of test samples", fmt::format("{}", test.size())}},
           "give all ranks the same data")
      .or_throw();
  check_sizes(world, train.size(), options).or_throw();
  if (options.deterministic || options.parallel.logical_ranks > 0) use_deterministic();
  agree(world, check_places(world, options)).or_throw();
  std::optional<ImageTask> task;
  report_device_errors(world, "while the model was made", nullptr, [&] { task.emplace(world, train, test, options); });
  return task->result(tutti::train(
      world, *task, {.checkpoints = options.checkpoints, .line_seconds = options.log_every, .record = options.record}));
}

}  // namespace tutti
