// A step takes its micro batches, runs the schedule of the pipeline over them (of one stage, where there is no
// pipeline), and ends in GridStep. All of it depends on the samples consumed before the step, and on nothing else.
#include "tutti/models/gpt/training.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/io/replace_file.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/collectives.h"
#include "tutti/data/tokens/token_check.h"
#include "tutti/metrics/timers_over_ranks.h"
#include "tutti/models/gpt/batches.h"
#include "tutti/models/gpt/grid_step.h"
#include "tutti/models/gpt/log_line.h"
#include "tutti/models/gpt/matrix_rate.h"
#include "tutti/models/gpt/model.h"
#include "tutti/models/gpt/training_state.h"
#include "tutti/parallel/pipeline/pipeline.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/compute.h"
#include "tutti/tensor/device_clock.h"
#include "tutti/tensor/device_errors.h"
#include "tutti/tensor/device_region.h"
#include "tutti/tensor/named_tensor.h"
#include "tutti/tensor/rank_device.h"
#include "tutti/tensor/seed.h"
#include "tutti/training/trainer.h"

namespace tutti::gpt {
namespace {

// What evaluations of a run need, of each kind.
std::int64_t evaluation_samples(const Options& options, std::int64_t evaluations) {
  const BatchSchedule schedule(options.batches);
  return evaluations * options.evaluation.iterations * schedule.unit() * schedule.most_microbatches();
}

GptDataOptions data_options(const Options& options) {
  GptDataOptions data = options.data;
  const std::int64_t interval = options.evaluation.interval, steps = steps_left(options, 0);
  data.samples = {options.skip_train ? 0 : options.train_samples,
                  evaluation_samples(options, (interval > 0 ? steps / interval : 0) + 1),
                  evaluation_samples(options, 1)};
  return data;
}

// The options as a Checkpointer knows them. Collective. As in Megatron-LM, a run starts from step 0 if --load names a
// folder without a checkpoint.
CheckpointerOptions checkpoint_options(const Group& world, const Options& options) {
  CheckpointerOptions made = options.checkpoints;
  if (made.folder.empty()) made.resume = "never";
  made.weights_only = options.weights_only;
  const Status can_save = made.folder.empty() ? Status() : of_option("--save-dir", make_writable_folder(made.folder));
  agree(world, can_save).or_throw();
  if (options.load.empty()) return made;
  const Status there = CheckpointReader::open(options.load, VerifyLevel::kFiles).status();
  if (options.must_load) agree(world, of_option("--load", there)).or_throw();
  const std::int64_t nothing = !there.ok() && there.error().code == Code::kNotFound;
  if (all_reduce(world, nothing, ReduceOp::kMin) != 0) {
    if (world.rank() == 0) log::warn(fmt::format("{} has no checkpoint: training starts from scratch", options.load));
    return made;
  }
  // A job that saves where it loads resumes its own run, however the two paths are written.
  std::error_code unknown;
  const std::int64_t same = !made.folder.empty() && std::filesystem::equivalent(options.load, made.folder, unknown);
  // The same command after code 75: --save has the checkpoints of this fine-tuning.
  const std::int64_t continues = options.weights_only && was_finetuned_from(made.folder, options.load);
  if (all_reduce(world, options.weights_only ? continues : same, ReduceOp::kMin) == 0) made.resume = options.load;
  return made;
}

class GptTask final : public Task {
 public:
  GptTask(const Group& world, const Options& options, const Tokenizer* tokenizer)
      : world_(world),
        options_(options),
        tokenizer_(tokenizer),
        heap_(world),
        groups_(make_parallel(world, options)),
        datasets_(open_data()),
        model_(make_model(groups_, options, rank_device(world, options.device))),
        weights_(groups_, options, model_),
        timers_(options.report.timing_level,
                options.report.timing_level > 0 ? device_clock(model_->device()) : nullptr),
        state_(groups_, weights_, options),
        schedule_(options.batches) {
    if (options.optimizer.loss_scale) loss_scale_.emplace(*options.optimizer.loss_scale);
    if (options.report.throughput) machine_flops_ = matrix_flops_of_all(world, model_->dtype(), model_->device());
  }

  LeveledTimers& timers() { return timers_; }

  void print_model() const {
    if (!is_last_rank()) return;
    fmt::print("{} on {}\n", to_string(options_.model), Grid(world_.size(), options_.parallel.grid).to_string());
    std::fflush(stdout);
  }

  // ---- Checkpoints
  void state(StateDict& state) override {
    state_.state(state, progress_);
    if (!state.loading()) return;
    state.after_load([this](const CheckpointReader&) {
      if (loss_scale_ && progress_.loss_scale) loss_scale_->load(*progress_.loss_scale);
      if (!loss_scale_) progress_.loss_scale.reset();
      return Status();
    });
  }
  std::string nothing_left() const override {
    if (options_.skip_train || progress_.consumed == 0) return {};
    return fmt::format("the checkpoint has already reached {} samples", progress_.consumed);
  }

  // ---- Training
  std::int64_t steps_left() const override {
    return options_.skip_train ? 0 : gpt::steps_left(options_, progress_.consumed);
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
    if (!training_) begin_training(number);
    const auto step_begin = now();
    const std::int64_t batch = schedule_.global_batch(progress_.consumed);
    const std::int64_t learned = progress_.consumed - progress_.skipped;
    const double rate = LearningRate(options_.optimizer.learning_rate).at(learned);
    const double decay = WeightDecay(options_.optimizer.weight_decay).at(learned);
    const StepScale scale{.loss_scale = loss_scale_ ? loss_scale_->scale() : 1,
                          .skips_infinity = loss_scale_ && loss_scale_->may_skip_step()};
    progress_.step = number;
    model_->train();
    weights_.zero_grad();
    {
      const auto timing = timers_.time_on_host("batch-generator", 2);
      batch_ = training_->batches.take(schedule_.microbatches(progress_.consumed), number);
    }
    StepResult passed;
    {
      const auto timing = timers_.time("forward-backward", 1);
      const DeviceRegion region("forward-backward", model_->device());
      passed =
          training_->pipeline.run(pipeline_schedule(options_, int(batch_.size()), false), {.scale = scale.loss_scale});
    }
    const StepOutcome outcome = weights_.finish(rate, decay, timers_, scale);
    progress_.consumed += batch;
    if (outcome.skipped) progress_.skipped += batch;
    if (loss_scale_) {
      loss_scale_->update(!outcome.skipped);
      progress_.loss_scale = loss_scale_->state();
    }
    const double loss = mean_loss(passed.losses);
    const double seconds = seconds_since(step_begin);
    report(loss, rate, scale.loss_scale, batch, outcome);
    return {.loss = loss,
            .lr = rate,
            .samples = double(batch),
            .skipped = outcome.skipped,
            .may_overflow = options_.model.precision == Precision::kF16,
            .scalars = std::exchange(scalars_, {}),
            .seconds = seconds};
  }

  // ---- Evaluating
  Scalars evaluate(std::int64_t step, bool final) override {
    const std::int64_t interval = options_.evaluation.interval, made = interval > 0 ? step / interval : 0;
    if (final) {
      validation_loss_ = evaluate_part(DataPart::kValidation, made, " on validation set");
      test_loss_ = evaluate_part(DataPart::kTest, 0, " on test set");
    } else {
      const auto paused = now();
      validation_loss_ = evaluate_part(DataPart::kValidation, made - 1, "");
      line_begin_ += now() - paused;
    }
    return std::exchange(scalars_, {});
  }

  void finish(const TrainingResult& result) override {
    if (result.stopped || !options_.generate.prompt || !tokenizer_) return;
    model_->eval();
    std::string text;
    const at::NoGradGuard no_grad;
    weights_.run_forward([&] { text = generate(*model_, *tokenizer_, options_.generate, options_.parallel.schedule); });
    if (world_.rank() == 0) fmt::print("{}\n", text);
  }

  RunResult result(TrainingResult training) const {
    RunResult made{.training = std::move(training),
                   .consumed = progress_.consumed,
                   .validation_loss = validation_loss_,
                   .test_loss = test_loss_};
    if (made.training.steps == 0) return made;
    made.tokens_per_s = double(last_batch_) * options_.model.sequence_length / made.training.timing.median_seconds;
    if (machine_flops_ > 0) made.utilisation = made.tokens_per_s * flops_per_token(options_.model) / machine_flops_;
    return made;
  }

 private:
  // ---- Making
  GptDatasets open_data() {
    bool needs_data = options_.reset_positions || options_.reset_attention;
    for (const auto& stage : stages_of_rank(options_, groups_.pipeline.rank()))
      needs_data = needs_data || stage.is_first || stage.is_last;
    Result<GptDatasets> opened = GptDatasets();
    const GptDataOptions data = data_options(options_);
    if (needs_data) opened = open_gpt_datasets(data);
    // By one rank that reads: a file is the same on all hosts, or its samples are checked as they are read.
    if (world_.rank() == 0 && opened.ok())
      if (const Status same = check_tokens(data); !same.ok()) opened = same.error();
    agree(world_, opened.status()).or_throw();
    return *std::move(opened);
  }

  bool is_last_rank() const { return world_.rank() == world_.size() - 1; }

  // ---- Training
  PipelineOptions pipeline_options() {
    return {.messages = {.dtype = options_.model.precision == Precision::kF64 ? DType::kF64 : DType::kF32,
                         .device = model_->device(),
                         .sizes = model_->activation_sizes(options_.batches.micro_batch),
                         .split_over = groups_.message_parts},
            .broadcast_losses = true,
            .before_last_backward = [this](int chunk) { weights_.before_last_backward(chunk); }};
  }

  std::vector<Chunk> chunks() {
    std::vector<Chunk> made;
    for (int chunk = 0; chunk < options_.parallel.chunks; ++chunk)
      made.push_back([this, chunk](int microbatch, const at::Tensor& input) {
        const auto timing = timers_.time("forward-compute", 2);
        const DeviceRegion region("forward", model_->device());
        return weights_.forward(chunk, batch_[std::size_t(microbatch)], input);
      });
    return made;
  }

  struct Training {
    Batches batches;
    Pipeline pipeline;
  };
  void begin_training(std::int64_t first_step) {
    training_.reset(new Training{
        Batches(datasets_[0].get(), groups_, options_, options_.order, model_->sequence(), model_->device()),
        Pipeline(groups_.pipeline, chunks(), pipeline_options())});
    training_->batches.restore(progress_.consumed);
    last_step_ = first_step - 1 + steps_left();
    line_begin_ = now();
  }

  // Of all samples of the step, on every rank.
  double mean_loss(const std::vector<double>& losses) const {
    double sum = 0;
    for (const double loss : losses) sum += loss;
    sum /= double(losses.size());
    const Group& group = groups_.averaging;
    return group.size() > 1 ? all_reduce(group, sum, ReduceOp::kSum) / group.size() : sum;
  }

  // ---- Reporting
  void report(double loss, double rate, double scale, std::int64_t batch, const StepOutcome& outcome) {
    last_batch_ = batch;
    if (outcome.skipped) {
      ++since_.skipped;
    } else {
      since_.loss += loss;
    }
    since_.samples += batch;
    ++since_.steps;
    const auto& wanted = options_.report;
    const bool line_due = progress_.step % wanted.log_interval == 0;
    const bool scalars_due = !wanted.tensorboard.empty() && progress_.step % wanted.tensorboard_interval == 0;
    std::optional<double> parameter_norm;  // collective
    if (wanted.parameter_norm && (line_due || scalars_due)) parameter_norm = weights_.parameter_norm();
    if (scalars_due) add_scalars(loss, rate, scale, batch, outcome, parameter_norm);
    if (!line_due) return;
    const double seconds = seconds_since(line_begin_);
    LogLine line{.step = progress_.step,
                 .steps = last_step_,
                 .consumed = progress_.consumed,
                 .ms_per_step = 1e3 * seconds / double(since_.steps),
                 .learning_rate = rate,
                 .global_batch = batch,
                 .loss_scale = scale,
                 .skipped = since_.skipped};
    if (const auto learned = since_.steps - since_.skipped; learned > 0) line.loss = since_.loss / double(learned);
    if (!outcome.skipped) line.gradient_norm = outcome.gradient_norm;
    if (wanted.zero_gradients) line.zeros = outcome.zero_gradients;
    line.parameter_norm = parameter_norm;
    if (wanted.throughput) {
      const double tokens = double(since_.samples) * options_.model.sequence_length / seconds;
      const double flops = tokens * flops_per_token(options_.model);
      line.teraflops = flops / 1e12 / world_.size();
      line.tokens_per_s = tokens;
      line.utilisation = flops / machine_flops_;
    }
    if (is_last_rank()) fmt::print("{}\n", to_string(line, std::time(nullptr)));
    if (line.teraflops) scalars_.push_back({"throughput", *line.teraflops});
    if (wanted.timers_to_tensorboard) scalars_.push_back({"iteration-time", line.ms_per_step / 1e3});
    report_timers();
    if (is_last_rank()) std::fflush(stdout);
    since_ = {};
    line_begin_ = now();
  }

  void report_timers() {
    if (options_.report.timing_level == 0) return;
    const auto readings = timers_of_ranks(world_, timers_.timers().take());
    if (options_.report.timers_to_tensorboard)
      for (const TimerSpread& timer : spread(readings))
        scalars_.push_back({timer.name + "-time", timer.most / double(since_.steps)});
    if (is_last_rank()) fmt::print("{}", timers_text(readings, double(since_.steps), options_.report.timing));
  }

  // Under the names of Megatron-LM.
  void add_scalars(double loss, double rate, double scale, std::int64_t batch, const StepOutcome& outcome,
                   std::optional<double> parameter_norm) {
    add_scalar("learning-rate", rate);
    add_scalar("batch-size", double(batch));
    if (loss_scale_) add_scalar("loss-scale", scale);
    if (outcome.skipped) return;
    add_scalar("lm loss", loss);
    add_scalar("grad-norm", outcome.gradient_norm);
    if (options_.report.zero_gradients) add_scalar("num-zeros", double(outcome.zero_gradients));
    if (parameter_norm) add_scalar("params-norm", *parameter_norm);
  }

  // By steps and by samples.
  void add_scalar(const std::string& name, double value) {
    scalars_.push_back({name, value});
    scalars_.push_back({name + " vs samples", value, progress_.consumed});
  }

  // The `turn`-th evaluation of that part takes the samples behind those of the turns before.
  double evaluate_part(DataPart part, std::int64_t turn, const char* of_what) {
    if (options_.evaluation.iterations == 0) return 0;
    const auto timing = timers_.time_on_host("evaluate", 1);
    const at::NoGradGuard no_grad;
    model_->eval();
    const BatchSchedule schedule(options_.batches);
    const int microbatches = schedule.most_microbatches();
    Batches batches(datasets_[std::size_t(part)].get(), groups_, options_, SampleOrder::kSequential, model_->sequence(),
                    model_->device());
    batches.restore(turn * options_.evaluation.iterations * schedule.unit() * microbatches);
    Pipeline pipeline(groups_.pipeline, chunks(), pipeline_options());
    double sum = 0;
    for (std::int64_t i = 0; i < options_.evaluation.iterations; ++i) {
      batch_ = batches.take(microbatches, progress_.step);
      sum += mean_loss(pipeline.run(pipeline_schedule(options_, microbatches, true)).losses);
    }
    const double loss = sum / double(options_.evaluation.iterations);
    if (is_last_rank()) {
      fmt::print("{}\n", evaluation_text(fmt::format("iteration {}{}", progress_.step, of_what), loss));
      std::fflush(stdout);
    }
    add_scalar(part == DataPart::kTest ? "lm loss test" : "lm loss validation", loss);
    return loss;
  }

  const Group& world_;
  const Options& options_;
  const Tokenizer* const tokenizer_;
  const HeapTensors heap_;
  const Parallel groups_;
  const GptDatasets datasets_;  // none of those that this rank does not read
  const std::shared_ptr<Transformer> model_;
  GridStep weights_;
  LeveledTimers timers_;
  TrainingState state_;
  const BatchSchedule schedule_;
  std::optional<LossScale> loss_scale_;
  Progress progress_;
  std::vector<MicroBatch> batch_;       // of the step under way
  double machine_flops_ = 0;            // a second, of all ranks together
  std::unique_ptr<Training> training_;  // from the first step on
  std::int64_t last_step_ = 0;          // that this run is going to make
  Clock::time_point line_begin_{};
  struct Since {
    double loss = 0;  // of steps that were made, added up
    std::int64_t steps = 0, skipped = 0, samples = 0;
  };
  Since since_;  // the line before
  std::int64_t last_batch_ = 0;
  Scalars scalars_;  // of the step or the evaluation under way
  double validation_loss_ = 0, test_loss_ = 0;
};

}  // namespace

RunResult pretrain(const Group& world, const Options& options, const Tokenizer* tokenizer) {
  prepare_compute(world);
  if (options.deterministic) use_deterministic();
  std::optional<GptTask> task;
  report_device_errors(world, "while the model was made", nullptr, [&] { task.emplace(world, options, tokenizer); });
  Trainer trainer(world, *task,
                  {.checkpoints = checkpoint_options(world, options),
                   .evaluation_interval = options.evaluation.interval,
                   .exit_interval = options.exit_interval,
                   .exit_after_seconds = options.exit_after_seconds,
                   .line_seconds = -1,
                   .record = {.trace = options.report.trace,
                              .tensorboard = options.report.tensorboard,
                              .tensorboard_rank = world.size() - 1,
                              .step_scalars = false,
                              .tensorboard_option = "--tensorboard-dir"},
                   .timers = &task->timers()});
  task->print_model();
  return task->result(trainer.run());
}

}  // namespace tutti::gpt
