// The loop. A step takes its micro batches, runs the schedule of the pipeline over them (of one stage, where there is
// no pipeline), and ends in WeightsStep. Everything that a step is hangs on the samples consumed before it.
#include "tutti/models/gpt/training.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <filesystem>
#include <optional>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/io/replace_file.h"
#include "tutti/checkpoint/job_checkpoints.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/collectives.h"
#include "tutti/data/tokens/token_check.h"
#include "tutti/metrics/timers_over_ranks.h"
#include "tutti/models/gpt/batches.h"
#include "tutti/models/gpt/generate.h"
#include "tutti/models/gpt/log_line.h"
#include "tutti/models/gpt/matrix_rate.h"
#include "tutti/models/gpt/training_state.h"
#include "tutti/models/gpt/weights_step.h"
#include "tutti/parallel/pipeline/pipeline.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/compute.h"
#include "tutti/tensor/seed.h"
#include "tutti/trace/event_file.h"
#include "tutti/trace/region.h"
#include "tutti/training/leveled_timers.h"
#include "tutti/training/recorder.h"

namespace tutti::gpt {
namespace {

constexpr std::size_t kWarmUpSteps = 3;

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

// --load and --save as JobCheckpoints knows them. Collective. Megatron-LM begins anew where --load has nothing yet.
JobCheckpointOptions checkpoint_options(const Group& world, const Options& options) {
  JobCheckpointOptions made = options.checkpoints;
  made.resume = made.folder.empty() ? "never" : "auto";
  made.weights_only = options.weights_only;
  const Status can_save = made.folder.empty() ? Status() : of_option("--save", make_writable_folder(made.folder));
  agree(world, can_save).or_throw();
  if (options.load.empty()) return made;
  const Status there = CheckpointReader::open(options.load, VerifyLevel::kFiles).status();
  if (options.must_load) agree(world, of_option("--load", there)).or_throw();
  const std::int64_t nothing = !there.ok() && there.error().code == Code::kNotFound;
  if (all_reduce(world, nothing, ReduceOp::kMin) != 0) {
    if (world.rank() == 0) log::warn(fmt::format("{} has no checkpoint: the run begins anew", options.load));
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

class GptTraining {
 public:
  GptTraining(const Group& world, const Options& options, const Tokenizer* tokenizer)
      : world_(world),
        options_(options),
        tokenizer_(tokenizer),
        heap_(world),
        groups_(make_grid_groups(world, options)),
        datasets_(open_data()),
        model_(std::make_shared<Model>(groups_, options, stages_of_rank(options, groups_.pipeline.rank()))),
        weights_(groups_, options, model_),
        timers_(options.report.timing_level),
        recorder_(world, {.trace = options.report.trace}),
        checkpoints_(world, checkpoint_options(world, options)),
        state_(groups_, weights_, options),
        schedule_(options.batches) {
    if (options.optimizer.loss_scale) loss_scale_.emplace(*options.optimizer.loss_scale);
    resume();
    open_events();
    if (options.report.throughput) machine_flops_ = matrix_flops_of_all(world, model_->dtype());
  }

  RunResult run() {
    if (world_.rank() == world_.size() - 1) {
      fmt::print("{} on {}\n", to_string(options_.shape), groups_.grid.to_string());
      std::fflush(stdout);
    }
    if (!options_.skip_train) fit();
    if (!result_.stopped) finish();
    checkpoints_.finish();
    recorder_.finish();
    result_.step = progress_.step;
    result_.consumed = progress_.consumed;
    return result_;
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

  void resume() {
    if (const auto saved = checkpoints_.resume(state_.boxes())) {
      // --finetune is about the checkpoint that --load names: those of this run are whole ones.
      auto loaded = state_.load(*saved, options_.weights_only && saved->source == ResumeSource::kNamed);
      agree(world_, loaded.status()).or_throw();
      progress_ = *loaded;
      if (loss_scale_ && progress_.loss_scale) loss_scale_->load(*progress_.loss_scale);
      if (!loss_scale_) progress_.loss_scale.reset();
      if (!options_.skip_train && left() == 0 && world_.rank() == 0)
        log::info(fmt::format("nothing is left to train: {} samples lie behind", progress_.consumed));
    }
    checkpoints_.prepare(state_.boxes());
  }

  void open_events() {
    Status made;
    if (!options_.report.tensorboard.empty() && is_last_rank()) {
      auto events = EventFile::create(options_.report.tensorboard);
      if (events.ok()) {
        events_ = std::move(*events);
      } else {
        made = of_option("--tensorboard-dir", events.status());
      }
    }
    agree(world_, made).or_throw();
  }

  bool is_last_rank() const { return world_.rank() == world_.size() - 1; }
  std::int64_t left() const { return steps_left(options_, progress_.consumed); }

  // ---- Training
  PipelineOptions pipeline_options() {
    return {.messages = {.dtype = options_.precision == Precision::kF64 ? DType::kF64 : DType::kF32,
                         .sizes = model_->activation_sizes(),
                         .split_over = groups_.message_parts},
            .tell_losses = true,
            .before_last_backward = [this](int chunk) { weights_.before_last_backward(chunk); }};
  }

  std::vector<Chunk> chunks() {
    std::vector<Chunk> made;
    for (int chunk = 0; chunk < options_.parallel.chunks; ++chunk)
      made.push_back([this, chunk](int microbatch, const at::Tensor& input) {
        const auto timing = timers_.time("forward-compute", 2);
        const Region region("forward");
        return model_->forward(chunk, batch_[std::size_t(microbatch)], input);
      });
    return made;
  }

  void fit() {
    Batches batches(datasets_[0].get(), groups_, options_, options_.order, model_->part());
    batches.restore(progress_.consumed);
    Pipeline pipeline(groups_.pipeline, chunks(), pipeline_options());
    const auto begin = now();
    line_begin_ = begin;
    const std::int64_t total = progress_.step + left();
    while (progress_.step < total && !result_.stopped && !left_) fit_step(pipeline, batches, total, begin);
    result_.seconds = seconds_since(begin);
    summarise();
  }

  void fit_step(Pipeline& pipeline, Batches& batches, std::int64_t total, Clock::time_point begin) {
    const auto step_begin = now();
    const std::int64_t batch = schedule_.global_batch(progress_.consumed);
    const std::int64_t learned = progress_.consumed - progress_.left_out;
    const double rate = LearningRate(options_.optimizer.learning_rate).at(learned);
    const double decay = WeightDecay(options_.optimizer.weight_decay).at(learned);
    const StepScale scale{.loss_scale = loss_scale_ ? loss_scale_->scale() : 1,
                          .leaves_out_infinity = loss_scale_ && loss_scale_->may_leave_out()};
    world_.step(++progress_.step);
    model_->train();
    weights_.zero_grad();
    {
      const auto timing = timers_.time("batch-generator", 2);
      batch_ = batches.take(schedule_.microbatches(progress_.consumed), progress_.step);
    }
    StepResult passed;
    {
      const auto timing = timers_.time("forward-backward", 1);
      const Region region("forward-backward");
      passed = pipeline.run(pipeline_schedule(options_, int(batch_.size()), false), {.scale = scale.loss_scale});
    }
    const StepOutcome outcome = weights_.finish(rate, decay, timers_, scale);
    progress_.consumed += batch;
    if (outcome.left_out) progress_.left_out += batch;
    if (loss_scale_) {
      loss_scale_->update(!outcome.left_out);
      progress_.loss_scale = loss_scale_->state();
    }
    ++result_.steps;
    const double loss = mean_loss(passed.losses);
    step_seconds_.push_back(seconds_since(step_begin));
    report(loss, rate, scale.loss_scale, batch, total, outcome);
    evaluate_if_due(total);
    after_step(total, begin);
  }

  // Of all samples of the step, on every rank.
  double mean_loss(const std::vector<double>& losses) const {
    double sum = 0;
    for (const double loss : losses) sum += loss;
    sum /= double(losses.size());
    const Group& group = groups_.averaging;
    return group.size() > 1 ? all_reduce(group, sum, ReduceOp::kSum) / group.size() : sum;
  }

  void after_step(std::int64_t total, Clock::time_point begin) {
    const bool last = progress_.step == total;
    auto due = checkpoints_.after(progress_.step, last);
    bool leave = options_.exit_interval > 0 && progress_.step % options_.exit_interval == 0;
    if (options_.exit_after_seconds > 0) {
      const std::int64_t over = seconds_since(begin) > options_.exit_after_seconds;
      leave = leave || all_reduce(world_, over, ReduceOp::kMax) != 0;
    }
    left_ = leave && !last;
    if (checkpoints_.saves() && (due.save || left_)) {
      const auto timing = timers_.time("save-checkpoint", 1);
      checkpoints_.save(state_.boxes(), state_.facts(progress_));
    }
    if (due.copy) checkpoints_.copy(state_.boxes(), state_.facts(progress_));
    result_.stopped = due.stop && !last;
  }

  void summarise() {
    if (step_seconds_.empty()) return;
    const std::size_t warm_up = std::min(kWarmUpSteps, step_seconds_.size() - 1);
    step_seconds_.erase(step_seconds_.begin(), step_seconds_.begin() + std::ptrdiff_t(warm_up));
    result_.median_seconds = median(std::move(step_seconds_));
    const double tokens = double(last_batch_) * options_.shape.sequence_length;
    result_.tokens_per_s = tokens / result_.median_seconds;
    if (machine_flops_ > 0)
      result_.utilisation = result_.tokens_per_s * flops_per_token(options_.shape) / machine_flops_;
  }

  // ---- What is told
  void report(double loss, double rate, double scale, std::int64_t batch, std::int64_t total,
              const StepOutcome& outcome) {
    result_.last_loss = loss;
    last_batch_ = batch;
    if (outcome.left_out) {
      ++since_.left_out;
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
    if (events_ && scalars_due) add_scalars(loss, rate, scale, batch, outcome, parameter_norm);
    if (!line_due) return;
    const double seconds = seconds_since(line_begin_);
    LogLine line{.step = progress_.step,
                 .steps = total,
                 .consumed = progress_.consumed,
                 .ms_per_step = 1e3 * seconds / double(since_.steps),
                 .learning_rate = rate,
                 .global_batch = batch,
                 .loss_scale = scale,
                 .skipped = since_.left_out};
    if (const auto learned = since_.steps - since_.left_out; learned > 0) line.loss = since_.loss / double(learned);
    if (!outcome.left_out) line.gradient_norm = outcome.gradient_norm;
    if (wanted.zero_gradients) line.zeros = outcome.zero_gradients;
    line.parameter_norm = parameter_norm;
    if (wanted.throughput) {
      const double tokens = double(since_.samples) * options_.shape.sequence_length / seconds;
      const double flops = tokens * flops_per_token(options_.shape);
      line.teraflops = flops / 1e12 / world_.size();
      line.tokens_per_s = tokens;
      line.utilisation = flops / machine_flops_;
    }
    if (is_last_rank()) fmt::print("{}\n", to_string(line, std::time(nullptr)));
    if (events_ && line.teraflops) events_->add_scalar("throughput", *line.teraflops, progress_.step);
    if (events_ && wanted.timers_to_tensorboard)
      events_->add_scalar("iteration-time", line.ms_per_step / 1e3, progress_.step);
    report_timers();
    if (is_last_rank()) std::fflush(stdout);
    since_ = {};
    line_begin_ = now();
  }

  void report_timers() {
    if (options_.report.timing_level == 0) return;
    const auto readings = timers_of_ranks(world_, timers_.timers().take());
    if (events_ && options_.report.timers_to_tensorboard)
      for (const TimerSpread& timer : spread(readings))
        events_->add_scalar(timer.name + "-time", timer.most / double(since_.steps), progress_.step);
    if (is_last_rank()) fmt::print("{}", timers_text(readings, double(since_.steps), options_.report.timing));
  }

  // Under the names of Megatron-LM.
  void add_scalars(double loss, double rate, double scale, std::int64_t batch, const StepOutcome& outcome,
                   std::optional<double> parameter_norm) {
    add_scalar("learning-rate", rate);
    add_scalar("batch-size", double(batch));
    if (loss_scale_) add_scalar("loss-scale", scale);
    if (outcome.left_out) return;
    add_scalar("lm loss", loss);
    add_scalar("grad-norm", outcome.gradient_norm);
    if (options_.report.zero_gradients) add_scalar("num-zeros", double(outcome.zero_gradients));
    if (parameter_norm) add_scalar("params-norm", *parameter_norm);
  }

  // By steps and by samples.
  void add_scalar(const std::string& name, double value) {
    events_->add_scalar(name, value, progress_.step);
    events_->add_scalar(name + " vs samples", value, progress_.consumed);
  }

  // ---- Evaluating
  void evaluate_if_due(std::int64_t total) {
    const std::int64_t interval = options_.evaluation.interval;
    if (interval == 0 || progress_.step % interval != 0 || progress_.step == total) return;
    const auto paused = now();
    result_.validation_loss = evaluate(DataPart::kValidation, progress_.step / interval - 1, "");
    line_begin_ += now() - paused;
  }

  // The `turn`-th evaluation of that part takes the samples behind those of the turns before.
  double evaluate(DataPart part, std::int64_t turn, const char* of_what) {
    if (options_.evaluation.iterations == 0) return 0;
    const auto timing = timers_.time("evaluate", 1);
    const at::NoGradGuard no_grad;
    model_->eval();
    const BatchSchedule schedule(options_.batches);
    const int microbatches = schedule.most_microbatches();
    Batches batches(datasets_[std::size_t(part)].get(), groups_, options_, SampleOrder::kSequential, model_->part());
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
    if (events_) add_scalar(part == DataPart::kTest ? "lm loss test" : "lm loss validation", loss);
    return loss;
  }

  // The end of the training: what was learned, as numbers and as text.
  void finish() {
    const std::int64_t interval = options_.evaluation.interval;
    if (!left_) {
      result_.validation_loss =
          evaluate(DataPart::kValidation, interval > 0 ? progress_.step / interval : 0, " on validation set");
      result_.test_loss = evaluate(DataPart::kTest, 0, " on test set");
    }
    if (options_.generate.prompt && tokenizer_) {
      model_->eval();
      const std::string text = generate(*model_, groups_, options_, *tokenizer_);
      if (world_.rank() == 0) fmt::print("{}\n", text);
    }
  }

  const Group& world_;
  const Options& options_;
  const Tokenizer* const tokenizer_;
  const HeapTensors heap_;
  const GridGroups groups_;
  const GptDatasets datasets_;  // none of those that this rank does not read
  const std::shared_ptr<Model> model_;
  WeightsStep weights_;
  LeveledTimers timers_;
  Recorder recorder_;
  std::unique_ptr<EventFile> events_;
  JobCheckpoints checkpoints_;
  TrainingState state_;
  const BatchSchedule schedule_;
  std::optional<LossScale> loss_scale_;
  Progress progress_;
  std::vector<MicroBatch> batch_;  // of the step under way
  double machine_flops_ = 0;       // a second, of all ranks together
  bool left_ = false;              // --exit-interval or --exit-duration-in-mins
  Clock::time_point line_begin_{};
  struct Since {
    double loss = 0;  // of steps that were made, added up
    std::int64_t steps = 0, left_out = 0, samples = 0;
  };
  Since since_;  // the line before
  std::int64_t last_batch_ = 0;
  std::vector<double> step_seconds_;
  RunResult result_;
};

}  // namespace

RunResult pretrain(const Group& world, const Options& options, const Tokenizer* tokenizer) {
  prepare_compute(world);
  if (options.deterministic) use_deterministic();
  GptTraining training(world, options, tokenizer);
  return training.run();
}

}  // namespace tutti::gpt
