// A plain training loop, with a clock. What is timed is what the PyTorch program that we compare with times: from a
// barrier before the fourth step of an epoch (before its last, if it has fewer) to a barrier after its last.
//
// A step has turns: one, or as many as passes are accumulated, or one for each logical rank of this process. All that a
// turn does hangs on the step, the (logical) rank and the turn, never on the process.
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
#include "tutti/comm/agree.h"
#include "tutti/comm/collectives.h"
#include "tutti/data/loader.h"
#include "tutti/models/image/evaluation.h"
#include "tutti/models/image/models.h"
#include "tutti/models/image/pictures.h"
#include "tutti/models/image/training_state.h"
#include "tutti/models/image/turns.h"
#include "tutti/models/image/weights_step.h"
#include "tutti/parallel/data_parallel/hooks/compression.h"
#include "tutti/parallel/data_parallel/hooks/power_sgd.h"
#include "tutti/parallel/replica_check.h"
#include "tutti/tensor/checkpoint.h"
#include "tutti/tensor/compute.h"
#include "tutti/tensor/seed.h"
#include "tutti/trace/region.h"
#include "tutti/training/step_line.h"

namespace tutti {
namespace {

constexpr std::int64_t kImageWarmUpSteps = 3;

const char* name(Overlap overlap) {
  constexpr const char* kNames[] = {"auto", "on", "off"};
  return kNames[int(overlap)];
}
const char* name(Sharding sharding) {
  constexpr const char* kNames[] = {"auto", "on", "off"};
  return kNames[int(sharding)];
}
const char* name(FiniteCheck check) {
  constexpr const char* kNames[] = {"off", "reduction", "before", "before"};
  return kNames[int(check)];
}
const char* name(Compression compression) {
  constexpr const char* kNames[] = {"none", "bf16", "f16", "powersgd"};
  return kNames[int(compression)];
}

bool is_sharded(const Group& world, const ImageTrainingOptions& options) {
  if (options.sharding != Sharding::kAuto) return options.sharding == Sharding::kOn;
  if (options.sharded_stage > 1) return true;  // asked for: check_sizes() has refused where it cannot be
  const int logical = options.parallel.logical_ranks;
  const bool same_bits = logical == 0 || world.size() == 2;
  const bool may_wait = options.parallel.overlap != Overlap::kOn;  // for backward's end
  return world.size() > 1 && world.nodes() == 1 && options.compression == Compression::kNone && same_bits && may_wait;
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

class ImageTraining {
 public:
  ImageTraining(const Group& world, const ImageDataset& data, const ImageTrainingOptions& options)
      : world_(world),
        options_(options),
        pictures_(data),
        model_(make_image_model(options.model, options.seed, options.dropout)),
        power_sgd_(make_power_sgd(options)),
        ddp_(model_, world, parallel_options(options, power_sgd_)),
        weights_(ddp_, {.rule = options.rule,
                        .sharded_stage = is_sharded(world, options) ? options.sharded_stage : 0,
                        .clip_grad_norm = options.clip_grad_norm,
                        .scales_loss = scales_loss(options)}),
        loader_(batches(data.size()), MakeBatch{&pictures_}, {.threads = options.loader_threads}),
        check_(world, parameters_of(*model_), {.every = options.check_replicas}),
        recorder_(world, options.record),
        checkpoints_(world, options.checkpoints),
        state_(world, *model_, weights_, power_sgd_.get(), options, data.size()) {
    const std::size_t samples = DistributedSampler(data.size(), 0, ranks()).size();
    steps_per_epoch_ = std::int64_t(samples / options.batch_size / std::size_t(options.accumulate));
    resume();
    line_.emplace(stderr, progress_.steps + steps_left(), world.rank() == 0 ? options.log_every : -1, progress_.steps);
  }

  ImageTrainingResult fit() {
    const auto begin = now();
    for (; progress_.epoch < options_.epochs && !result_.stopped; next_epoch()) fit_epoch();
    line_->finish();
    if (!step_seconds_.empty()) result_.median_seconds = median(std::move(step_seconds_));
    result_.samples_per_s = result_.seconds > 0 ? double(result_.steps) * samples_per_step() / result_.seconds : 0;
    result_.exposed_percent = 100 * ddp_.stats().exposed_seconds / seconds_since(begin);
    result_.left_out = weights_.left_out();
    result_.parallel = ddp_.stats();
    return result_;
  }

  ImageModel& model() { return *model_; }
  Recorder& recorder() { return recorder_; }
  JobCheckpoints& checkpoints() { return checkpoints_; }
  std::int64_t steps() const { return progress_.steps; }

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
  // Steps that the samples passed in this epoch would have taken: where fewer ranks or smaller batches saved than go
  // on, a step that was half done counts as a whole.
  std::int64_t steps_behind() const {
    const auto samples = std::uint64_t(samples_per_step());
    return std::int64_t((progress_.position + samples - 1) / samples);
  }
  // Of the epoch under way; --max-steps counts the steps that were made.
  std::int64_t epoch_steps_left() const {
    std::int64_t left = steps_per_epoch_ - steps_behind();
    if (options_.max_steps > 0) left = std::min(left, options_.max_steps - progress_.epoch_steps);
    return std::max<std::int64_t>(0, left);
  }
  std::int64_t steps_left() const {
    const std::int64_t epochs = options_.epochs - progress_.epoch;
    return epochs > 0 ? epoch_steps_left() + (epochs - 1) * most_steps() : 0;
  }

  void resume() {
    if (const auto saved = checkpoints_.resume(state_.wanted_boxes())) {
      auto loaded = state_.load(*saved);
      agree(world_, loaded.status()).or_throw();
      progress_ = *loaded;
      if (progress_.epoch_steps < 0) progress_.epoch_steps = steps_behind();
      if (steps_left() == 0 && world_.rank() == 0)
        log::info(fmt::format("nothing is left to train: --epochs {}{} lies behind it", options_.epochs,
                              options_.max_steps > 0 ? fmt::format(" of --max-steps {}", options_.max_steps) : ""));
    }
    checkpoints_.prepare(state_.boxes());
  }

  // Where the loader stands, as a checkpoint keeps it.
  void note_position() {
    const auto state = loader_.state();
    progress_.position = state.ranks.front().position;
    ++progress_.epoch_steps;
  }
  void next_epoch() {
    if (result_.stopped) return;
    ++progress_.epoch;
    progress_.epoch_steps = 0;
    progress_.position = 0;
  }

  void fit_epoch() {
    auto place = loader_.state();
    for (auto& rank : place.ranks) rank = {.epoch = progress_.epoch, .position = progress_.position};
    place.next = 0;
    loader_.restore(place);
    const std::int64_t steps = epoch_steps_left();
    if (steps == 0) return;
    const std::int64_t warm_up = std::min(kImageWarmUpSteps, steps - 1);
    step_seconds_.reserve(step_seconds_.size() + std::size_t(steps - warm_up));
    auto timed_from = now();
    std::int64_t done = 0;
    while (done < steps && !result_.stopped) {
      if (done == warm_up) {
        barrier(world_);
        timed_from = now();
      }
      ++done;
      const auto begin = now();
      fit_step();
      if (done > warm_up) step_seconds_.push_back(seconds_since(begin));
    }
    barrier(world_);
    result_.seconds += done > warm_up ? seconds_since(timed_from) : 0;
    result_.steps += std::max<std::int64_t>(0, done - warm_up);
  }

  void fit_step() {
    const std::int64_t left = steps_left();
    world_.step(++progress_.steps);
    const StepTimes times = train_step(progress_.steps);
    note_position();
    recorder_.step(progress_.steps, times);
    line_->record({.loss = times.loss,
                   .lr = times.lr,
                   .samples = times.samples,
                   .seconds = times.step,
                   .data_seconds = times.data,
                   .exposed_seconds = times.exposed});
    result_.last_loss = times.loss;
    check_.step();
    const auto due = checkpoints_.after(progress_.steps, left == 1);
    if (due.save) checkpoints_.save(state_.boxes(), state_.facts(progress_));
    if (due.copy) checkpoints_.copy(state_.boxes(), state_.facts(progress_));
    result_.stopped = due.stop && left > 1;
  }

  StepTimes train_step(std::int64_t step) {
    const auto begin = now();
    StepTimes times{.samples = samples_per_step(), .lr = learning_rate(options_.rule)};
    ddp_.zero_grad();
    double loss = 0;
    const auto logical = ddp_.logical_ranks();
    const int turns = logical.empty() ? options_.accumulate : int(logical.size());
    for (int turn = 0; turn < turns; ++turn) {
      if (!logical.empty()) {
        ddp_.begin_logical_rank(logical[std::size_t(turn)]);
        seed_all(options_.seed, {.step = step, .replica = logical[std::size_t(turn)]});
        loss += pass(times, 1);
      } else {
        seed_all(options_.seed, {.step = step, .replica = world_.rank(), .micro_batch = turn});
        std::optional<DataParallel<ImageModel>::NoSync> accumulating;
        if (turn + 1 < turns) accumulating.emplace(ddp_.reducer());
        loss += pass(times, turns);
      }
    }
    const auto passed = now();
    weights_.finish();
    times.exposed = ddp_.stats().last_exposed_seconds;
    times.optimizer = seconds_since(passed) - times.exposed;
    times.loss = mean_over_ranks(world_, loss) / turns;
    times.step = seconds_since(begin);
    return times;
  }

  // Forward and backward; `share`: of how many passes the mean is taken. The loss.
  double pass(StepTimes& times, int share) {
    auto begin = now();
    const auto lap = [&](double& phase) {
      const auto end = now();
      phase += to_seconds(end - begin);
      begin = end;
    };
    std::optional<PictureBatch> batch;
    {
      const Region region("data");
      batch = loader_.next();
      TUTTI_REQUIRE(batch.has_value(), "the loader ended within an epoch");
    }
    lap(times.data);
    at::Tensor loss;
    {
      const Region region("forward");
      loss = at::nll_loss(ddp_.forward(batch->pictures), batch->labels);
    }
    lap(times.forward);
    const double value = loss.item<double>();
    refuse_nan(value);
    {
      const Region region("backward");
      weights_.scaled(share > 1 ? loss / share : loss).backward();
    }
    lap(times.backward);
    return value;
  }

  // A loss whose products are in f16 may overflow: then the step is left out.
  void refuse_nan(double loss) const {
    if (std::isfinite(loss) || computes_in_f16(options_)) return;
    std::string detail = fmt::format("the loss of step {} is {} in the samples of rank {}", progress_.steps,
                                     std::isnan(loss) ? "not a number" : "infinite", world_.rank());
    std::string hint = fmt::format("the learning rate is {}: a smaller one, or --clip-grad-norm, may help",
                                   learning_rate(options_.rule));
    if (const std::string weight = first_weight_that_is_not_finite(); !weight.empty()) {
      detail += fmt::format(", since {} has had a NaN or an infinity from a step before", weight);
      if (!looks_at_gradients())
        hint += "; --check-gradients before tells whether a gradient had them first, of which weight and on which rank";
    }
    throw Exception(Error{.code = Code::kAborted,
                          .detail = std::move(detail),
                          .hint = std::move(hint),
                          .group = world_.name(),
                          .rank = world_.rank()});
  }

  // A rank that is alone averages nothing, but where it steps its part of the weights, which is all of them.
  bool looks_at_gradients() const {
    const auto check = options_.parallel.finite_check;
    const bool averages = world_.size() > 1 || is_sharded(world_, options_);
    return check == FiniteCheck::kReport || (check == FiniteCheck::kInReduction && averages);
  }

  std::string first_weight_that_is_not_finite() const {
    for (const auto& [name, weight] : parameters_of(*model_))
      if (!at::isfinite(weight).all().item<bool>()) return name;
    return {};
  }

  const Group& world_;
  const ImageTrainingOptions& options_;
  Pictures pictures_;
  std::shared_ptr<ImageModel> model_;
  const std::shared_ptr<PowerSgd> power_sgd_;  // null: gradients travel otherwise
  DataParallel<ImageModel> ddp_;
  WeightsStep weights_;
  struct MakeBatch {
    const Pictures* pictures;
    PictureBatch operator()(const std::vector<std::int64_t>& samples) const { return pictures->batch(samples); }
  };
  Loader<TurnBatches, MakeBatch> loader_;
  ReplicaCheck check_;
  Recorder recorder_;
  JobCheckpoints checkpoints_;
  ImageTrainingState state_;
  ImageProgress progress_;
  std::int64_t steps_per_epoch_ = 0;
  std::optional<StepLine> line_;
  std::vector<double> step_seconds_;  // of the timed ones
  ImageTrainingResult result_;
};

std::vector<std::pair<std::string, std::string>> option_words(const ImageTrainingOptions& options) {
  const auto text = [](const auto& value) { return fmt::format("{}", value); };
  return {{"--model", options.model},
          {"--dropout", text(options.dropout)},
          {"--batch-size", text(options.batch_size)},
          {"--accumulate", text(options.accumulate)},
          {"--epochs", text(options.epochs)},
          {"--max-steps", text(options.max_steps)},
          {"--optimizer", name(options.rule)},
          {"--lr", text(learning_rate(options.rule))},
          {"the optimizer's options", to_string(options.rule)},
          {"--clip-grad-norm", text(options.clip_grad_norm)},
          {"--seed", text(options.seed)},
          {"--logical-ranks", text(options.parallel.logical_ranks)},
          {"--precision", options.parallel.autocast ? name(*options.parallel.autocast) : "f32"},
          {"--compress", name(options.compression)},
          {"--check-replicas", text(options.check_replicas)},
          {"--check-gradients", name(options.parallel.finite_check)},
          {"--overlap", name(options.parallel.overlap)},
          {"--views", options.parallel.gradients_as_views ? "on" : "off"},
          {"--sharded", name(options.sharding)},
          {"--stage", text(options.sharded_stage)},
          {"--no-heap", options.parallel.heap_tensors ? "off" : "on"},
          {"--save-dir", options.checkpoints.folder.empty() ? "none" : "given"},
          {"--save-dir-per-node", options.checkpoints.folder_per_node ? "on" : "off"},
          {"--save-interval", text(options.checkpoints.interval)},
          {"--keep", text(options.checkpoints.keep)},
          {"--keep-every", text(options.checkpoints.keep_every)},
          {"--resume", options.checkpoints.resume},
          {"--memory-copy-interval", text(options.checkpoints.memory_copy_interval)},
          {"--deterministic", options.deterministic ? "on" : "off"},
          {"--trace", trace_kind(options.record)},
          {"--profile", options.record.profile ? "on" : "off"}};
}

}  // namespace

bool scales_loss(const ImageTrainingOptions& options) {
  return options.compression == Compression::kF16 || computes_in_f16(options);
}

ImageTrainingResult train_image_model(const Group& world, const ImageDataset& train, const ImageDataset& test,
                                      const ImageTrainingOptions& options) {
  prepare_compute(world);
  auto words = option_words(options);
  words.emplace_back("the number of training samples", fmt::format("{}", train.size()));
  words.emplace_back("the number of test samples", fmt::format("{}", test.size()));
  agree_on(world, "the ranks were started differently", words,
           "start all ranks with the same options, and with the same data")
      .or_throw();
  check_sizes(world, train.size(), options).or_throw();
  if (options.deterministic || options.parallel.logical_ranks > 0) use_deterministic();
  agree(world, check_places(world, options)).or_throw();
  ImageTraining training(world, train, options);
  auto result = training.fit();
  if (result.stopped) {
    training.checkpoints().finish();
    training.recorder().finish();
    result.saving = training.checkpoints().stats();
    result.copying = training.checkpoints().copy_stats();
    return result;
  }
  const auto score = evaluate(world, training.model(), test);
  training.recorder().test(training.steps(), score.accuracy, score.loss);
  result.test_accuracy = score.accuracy;
  result.test_loss = score.loss;
  if (!options.save.empty() && world.rank() == 0) {
    save_module(training.model(), options.save,
                {{"model", options.model}, {"test_accuracy", fmt::format("{:.4f}", score.accuracy)}})
        .or_throw();
    log::info("weights saved to " + options.save);
  }
  training.checkpoints().finish();
  result.saving = training.checkpoints().stats();
  result.copying = training.checkpoints().copy_stats();
  training.recorder().finish();  // last: a disk too full for the trace must not cost the weights
  return result;
}

}  // namespace tutti
