// The training of dlrm_s_pytorch.py. Losses and hits that each rank knows in part are kept as sums. Ranks add them up
// where a line is printed, so a printed loss is that of whole batches, and steps in between exchange no losses.
#include "tutti/models/dlrm/training.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <optional>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/io/replace_file.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/collectives.h"
#include "tutti/models/dlrm/batches.h"
#include "tutti/models/dlrm/debug.h"
#include "tutti/models/dlrm/evaluation.h"
#include "tutti/models/dlrm/iteration_timer.h"
#include "tutti/models/dlrm/learning_rate.h"
#include "tutti/models/dlrm/model.h"
#include "tutti/models/dlrm/placing.h"
#include "tutti/models/dlrm/printed_lines.h"
#include "tutti/models/dlrm/printer.h"
#include "tutti/models/dlrm/reports.h"
#include "tutti/models/dlrm/saved_model.h"
#include "tutti/models/dlrm/tensors.h"
#include "tutti/tensor/compute.h"
#include "tutti/tensor/device_errors.h"
#include "tutti/tensor/rank_device.h"
#include "tutti/trace/region.h"
#include "tutti/training/trainer.h"

namespace tutti::dlrm {
namespace {

ModelOptions model_options(const Group& world, const Options& options, at::Device device) {
  ModelOptions made{.optimizer = options.training.optimizer, .type = options.training.type, .device = device};
  const auto& placement = options.placement;
  if (world.size() == 1 && options.architecture.weighted_pooling == WeightedPooling::kNone)
    made.packed_bits = options.inference.table_bits;
  made.tables.lr = options.training.learning_rate;
  if (options.training.reference_gradient_scale) made.tables.gradient_scale = double(world.size());
  made.tables.exchange = placement.exchange;
  made.tables.wire = placement.wire;
  made.tables.share_memory = !placement.links_only;
  made.tables.folder = placement.folder;
  if (placement.cached_bytes > 0) made.tables.cached_bytes = std::size_t(placement.cached_bytes);
  return made;
}

std::string wall_time_text(bool wanted) {
  if (!wanted) return {};
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  return fmt::format(" ({:02}:{:02})", parts.tm_hour, parts.tm_min);
}

// Since the last line.
struct Totals {
  double loss = 0, seconds = 0;  // loss: of this rank's samples
  std::int64_t samples = 0, batches = 0;
};

class DlrmTask final : public Task {
 public:
  DlrmTask(const Group& world, const Options& options, const Architecture& architecture, Sources& sources)
      : world_(world),
        options_(options),
        printer_(world, options.report.print_all),
        device_(rank_device(world, options.device)),
        model_(world, architecture, placed(architecture), model_options(world, options, device_)),
        source_(*sources.train),
        train_(*sources.train, architecture, reading(options.data.workers, options.training.accumulate)),
        test_(*sources.test, architecture,
              reading(options.data.test_workers < 0 ? options.data.workers : options.data.test_workers, 1)),
        rate_{options.training.learning_rate, options.training.warmup_steps, options.training.decay_start,
              options.training.decay_steps},
        print_freq_(options.report.print_freq),
        test_freq_(options.report.test_freq),
        timer_(options.report.mlperf_logging ? IterationSpan::kBatchToBatch : IterationSpan::kStep) {
    const auto& placement = options_.placement;
    if (placement.wire != WireFormat::kExact && world_.nodes() == 1 && !placement.links_only && world_.rank() == 0)
      log::warn(
          fmt::format("--wire {} has no effect: all ranks share the memory of one host; --no-shared-tables "
                      "sends rows anyway",
                      placement.wire == WireFormat::kBF16 ? "bf16" : "int8"));
    if (!options.report.debug) return;
    train_.stop();  // the source has one reader at a time
    printer_.line(architecture_text(model_.architecture(), feature_dims()));
    print_data(printer_, source_, train_.batches(), options.report.print_precision);
  }

  // ---- Checkpoints: into --save-dir. None for a model that is only asked, with tables that may be packed.
  void state(StateDict& state) override {
    if (!options_.inference.only) add_boxes(state, model_);
    if (!state.loading()) {
      state.facts() = facts_of(world_, model_, state_to_save());
      return;
    }
    state.after_load([this](const CheckpointReader& saved) -> Status {
      printer_.line("Loading saved model " + saved.folder());
      const SavedState found = TUTTI_TRY(load_model(saved, model_, !options_.inference.only));
      return take_up(saved.folder(), found);
    });
  }
  // From --load-model, or anew.
  Result<std::int64_t> start() override {
    const std::string& path = options_.report.load_model;
    if (path.empty()) {
      model_.draw_weights(std::uint32_t(options_.training.seed));
    } else {
      printer_.line("Loading saved model " + path);
      const SavedState state = TUTTI_TRY(load_model(world_, path, model_, !options_.inference.only));
      TUTTI_TRY(take_up(path, state));
    }
    return state_.steps;
  }
  std::string nothing_left() const override {
    if (options_.inference.only || loaded_from_.empty()) return {};
    return fmt::format("{} has already reached --nepochs {}", loaded_from_, options_.training.epochs);
  }

  // What comes between the weights and the first batch.
  void prepare() {
    const auto& report = options_.report;
    model_.quantise(options_.inference.mlp_bits, options_.inference.table_bits);
    if (model_.packed_bytes() > 0)
      printer_.line(
          fmt::format("Tables of {} bits take {}", options_.inference.table_bits, bytes_text(model_.packed_bytes())));
    if (report.debug) {
      printer_.line("initial parameters (weights and bias):");
      print_parameters(printer_, model_, report.print_precision);
      printer_.line(model_text(model_.architecture()));
    }
    printer_.line("time/loss/accuracy (if enabled):");
  }

  // ---- Training
  std::int64_t steps_left() const override {
    if (options_.inference.only || reached_threshold_) return 0;
    const auto steps = [&](std::int64_t batches) {
      const std::int64_t of_a_step = options_.training.accumulate;
      return (batches + of_a_step - 1) / of_a_step;
    };
    const std::int64_t epochs = options_.training.epochs - state_.epoch;
    return epochs > 0 ? steps(train_.batches() - state_.batch) + (epochs - 1) * steps(train_.batches()) : 0;
  }

  void run_part(const std::string& when, const std::function<void()>& part) override {
    report_device_errors(
        world_, when, [&] { return held(); }, part);
  }

  TrainingStep step(std::int64_t) override {
    go_to_batch();
    const StepBatch& step = train_.next();
    const auto begin = now();
    timer_.begin(begin);
    const std::vector<LossSums> losses = train_step(step);
    const auto end = now();
    const double seconds = timer_.end(end);
    for (std::size_t part = 0; part < step.sizes.size(); ++part) {
      totals_.loss += losses[part].loss;
      totals_.samples += step.sizes[part];
      totals_.seconds += seconds / double(step.sizes.size());
      ++totals_.batches;
      ++state_.batch;
      after_batch();
    }
    if (!test_waits_) save_if_due();  // else after the test
    return {.lr = rate_.at(state_.steps),
            .samples = double(step.samples),
            .evaluate = test_waits_,
            .scalars = std::exchange(scalars_, {}),
            .seconds = to_seconds(end - begin)};
  }

  Scalars evaluate(std::int64_t, bool final) override {
    if (final) {
      if (options_.inference.only) infer();
      return {};
    }
    test();
    test_waits_ = false;
    save_if_due();
    return std::exchange(scalars_, {});
  }

  void finish(const TrainingResult& result) override {
    if (options_.inference.only) return;
    const auto& report = options_.report;
    if (!report.save_model.empty() && test_freq_ <= 0 && saved_at_ != state_.steps && !result.stopped) save();
    if (!report.debug) return;
    printer_.line("updated parameters (weights and bias):");
    print_parameters(printer_, model_, report.print_precision);
  }

  RunResult result(TrainingResult training) {
    if (!options_.inference.only) result_.timing = training.timing;
    result_.training = std::move(training);
    return result_;
  }

 private:
  TablePlacement placed(const Architecture& architecture) {
    auto placing =
        place_tables(options_, table_specs(architecture, lookups_of(options_.data)), world_.size()).or_throw();
    if (world_.size() > 1 && world_.rank() == 0) fmt::print(stderr, "{}\n", placing.text);
    return std::move(placing.placement);
  }

  Reading reading(std::int64_t ahead, std::int64_t accumulate) {
    return {.rank = world_.rank(),
            .ranks = world_.size(),
            .my_tables = model_.my_tables(),
            .accumulate = accumulate,
            .batches = options_.data.num_batches,
            .ahead = ahead};
  }

  std::vector<std::int64_t> feature_dims() const {
    std::vector<std::int64_t> dims;
    for (const auto& feature : model_.architecture().features)
      dims.push_back(model_.architecture().tables[feature.table].dim);
    return dims;
  }

  Status take_up(const std::string& path, const SavedState& saved) {
    printer_.line(fmt::format("Saved at: epoch = {}/{}, batch = {}/{}, ntbatch = {}", saved.epoch, saved.epochs,
                              saved.batch, saved.batches, saved.test_batches));
    printer_.line(fmt::format("Training state: loss = {:.6f}", saved.train_loss));
    printer_.line(fmt::format("Testing state: accuracy = {:3.3f} %", 100 * saved.test_accuracy));
    if (options_.inference.only) {
      print_freq_ = std::max<std::int64_t>(1, saved.batches);
      test_freq_ = 0;
      return {};
    }
    if (saved.batch > 0 && (saved.batch_size != options_.training.batch || saved.batches != train_.batches()))
      return Error{
          .code = Code::kUsage,
          .detail =
              fmt::format("{} was saved after {} of {} batches of {} samples, and an epoch now has {} of {}", path,
                          saved.batch, saved.batches, saved.batch_size, train_.batches(), options_.training.batch),
          .hint = "resume with the same --mini-batch-size and data, or load a model that was saved at an epoch's end"};
    state_ = saved;
    loaded_from_ = path;
    totals_ = {
        .loss = world_.rank() == 0 ? saved.loss_sum : 0, .samples = saved.loss_samples, .batches = saved.loss_batches};
    return {};
  }

  // Moves the reader to where the step begins, if it is not there: in a resumed run, and in each new epoch.
  void go_to_batch() {
    if (state_.batch == train_.batches()) {
      state_.batch = 0;
      ++state_.epoch;
    }
    if (in_epoch_ && state_.batch > 0) return;
    in_epoch_ = true;
    train_.seek(state_.batch, state_.epoch);
    timer_.pause();
  }

  HeldMemory held() const {
    HeldMemory held;
    for (const DenseTensor& dense : model_.dense()) {
      held.parameters.push_back({dense.name, dense.value});
      if (dense.squares.defined()) held.optimizer_bytes += dense.squares.nbytes();
    }
    return held;
  }

  // By batch of the step, what its samples here lost.
  std::vector<LossSums> train_step(const StepBatch& step) {
    const auto views = step.views();
    const auto rows = step.mine.size();
    const auto predictions = model_.forward(model_batch(model_, step, views));
    const auto targets = targets_of(model_, step), gradient = at::empty_like(predictions);
    std::vector<LossSums> losses;
    std::int64_t before = 0, done = 0;
    {
      const Region region("DLRM loss compute");
      for (auto size : step.sizes) {
        const auto end = std::clamp<std::int64_t>(before + size - step.mine.begin, done, rows);
        losses.push_back(loss_of(options_.loss, predictions.narrow(0, done, end - done),
                                 targets.narrow(0, done, end - done), double(step.samples),
                                 gradient.narrow(0, done, end - done)));
        refuse_nan(losses.back().loss, step.first + std::int64_t(losses.size()));
        done = end;
        before += size;
      }
    }
    model_.learn(gradient, rate_.at(++state_.steps));
    return losses;
  }

  void refuse_nan(double loss, std::int64_t batch) const {
    if (std::isfinite(loss)) return;
    throw Exception(loss_not_finite(world_, loss, fmt::format("batch {} of epoch {}", batch, state_.epoch),
                                    in_samples_of(world_),
                                    fmt::format("the learning rate is {} there: a smaller one, --lr-num-warmup-steps "
                                                "or --loss-threshold may help",
                                                rate_.at(state_.steps + 1))));
  }

  bool due(std::int64_t every) const {
    return every > 0 && (state_.batch % every == 0 || state_.batch == train_.batches());
  }

  // After one batch of a step. Its weights are those of the end of the step, so tests and saves wait for that.
  void after_batch() {
    const bool should_test = due(test_freq_);
    if (should_test) test_waits_ = true;
    if (due(options_.report.save_freq)) save_waits_ = true;
    if (due(print_freq_) || should_test) print_progress();
  }

  Progress progress() const { return {.batch = state_.batch, .batches = train_.batches(), .epoch = state_.epoch}; }
  std::int64_t log_step() const { return train_.batches() * state_.epoch + state_.batch; }
  void add_scalar(const char* tag, double value) { scalars_.push_back({tag, value, log_step()}); }

  // Of all ranks, since the last line.
  double loss_of_all() const { return world_.size() > 1 ? all_reduce(world_, totals_.loss) : totals_.loss; }

  void print_progress() {
    state_.train_loss = result_.last_loss = loss_of_all() / double(totals_.samples);
    print_line(progress(), false, result_.last_loss);
    add_scalar("Train/Loss", result_.last_loss);
    totals_ = {};
  }
  void print_line(const Progress& at, bool testing, double loss) {
    const auto& report = options_.report;
    const double ms = report.print_time ? 1e3 * totals_.seconds / double(totals_.batches) : -1;
    printer_.line(progress_line(at, testing, ms, loss, wall_time_text(report.print_wall_time)));
  }

  void test() {
    const auto& report = options_.report;
    printer_.line(testing_line(progress()));
    auto scores = dlrm::evaluate(world_, model_, test_, options_.loss, report.mlperf_logging).scores;
    const bool better = report.mlperf_logging ? scores.auc > state_.best_auc : scores.accuracy > state_.best_accuracy;
    state_.test_accuracy = result_.accuracy = scores.accuracy;
    result_.auc = scores.auc;
    scores.best_accuracy = state_.best_accuracy = std::max(state_.best_accuracy, scores.accuracy);
    scores.best_auc = state_.best_auc = std::max(state_.best_auc, scores.auc);
    printer_.line(scores_line(scores));
    add_scores(scores);
    timer_.pause();
    if (better && !report.save_model.empty()) save();
    reached_threshold_ = reached("accuracy", report.accuracy_threshold, scores.best_accuracy) ||
                         reached("auc", report.auc_threshold, scores.best_auc);
  }

  void add_scores(const TestScores& scores) {
    add_scalar("Test/Acc", scores.accuracy);
    if (!scores.ranked) return;
    add_scalar("mlperf-metrics-test/recall", scores.recall);
    add_scalar("mlperf-metrics-test/precision", scores.precision);
    add_scalar("mlperf-metrics-test/f1", scores.f1);
    add_scalar("mlperf-metrics-test/ap", scores.average_precision);
    add_scalar("mlperf-metrics-test/roc_auc", scores.auc);
  }

  bool reached(const char* what, double threshold, double best) const {
    if (threshold <= 0 || best <= threshold) return false;
    printer_.line(fmt::format("MLPerf testing {} threshold {} reached, stop training", what, threshold));
    return true;
  }

  // To --save-model.
  void save_if_due() {
    if (std::exchange(save_waits_, false) && saved_at_ != state_.steps) save();
  }
  void save() {
    const auto& folder = options_.report.save_model;
    if (folder.empty()) return;
    printer_.line("Saving model to " + folder);
    save_model(world_, folder, model_, state_to_save()).or_throw();
    saved_at_ = state_.steps;
  }

  SavedState state_to_save() const {
    auto state = state_;
    state.epochs = options_.training.epochs;
    state.batches = train_.batches();
    state.test_batches = test_.batches();
    state.batch_size = options_.training.batch;
    state.loss_sum = loss_of_all();
    state.loss_samples = totals_.samples;
    state.loss_batches = totals_.batches;
    if (state.batch == state.batches) {  // the next one begins
      state.batch = 0;
      ++state.epoch;
    }
    return state;
  }

  void infer() {
    printer_.line("Testing for inference only");
    StepTimer timer;
    timer.begin_epoch(test_.batches());
    const auto after = [&](std::int64_t batch, double loss, std::int64_t samples, double seconds) {
      totals_.loss += loss;
      totals_.samples += samples;
      totals_.seconds += seconds;
      ++totals_.batches;
      timer.add(seconds, double(samples));
      if (batch % print_freq_ != 0 && batch != test_.batches()) return;
      print_line({.batch = batch, .batches = test_.batches()}, true, loss_of_all() / double(totals_.samples));
      totals_ = {};
    };
    const auto found = dlrm::evaluate(world_, model_, test_, options_.loss, options_.report.mlperf_logging, after);
    auto scores = found.scores;
    scores.best_accuracy = scores.accuracy;
    scores.best_auc = scores.auc;
    printer_.line(scores_line(scores));
    result_.timing = timer.timing();
    result_.inferred_batches = test_.batches();
    result_.last_loss = found.loss;
    result_.accuracy = scores.accuracy;
    result_.auc = scores.auc;
  }

  const Group& world_;
  const Options& options_;
  Printer printer_;
  const at::Device device_;
  Model model_;
  ClickSource& source_;
  BatchReader train_, test_;
  LearningRate rate_;
  std::int64_t print_freq_, test_freq_;
  IterationTimer timer_;
  SavedState state_;  // of the training
  std::string loaded_from_;
  std::int64_t saved_at_ = -1;  // the steps in --save-model
  bool in_epoch_ = false;       // the reader is where state_ says
  bool test_waits_ = false, save_waits_ = false, reached_threshold_ = false;
  Totals totals_;
  Scalars scalars_;  // of the step or test under way
  RunResult result_;
};

// Better asked before tables are filled than after it. Rank 0 writes what --out-dir and --save-model get.
Status check_folders(const Group& world, const Options& options, const CheckpointerOptions& checkpoints) {
  const auto& report = options.report;
  const std::string& tables = options.placement.folder;
  if (!checkpoints.folder.empty()) TUTTI_TRY(of_option("--save-dir", make_writable_folder(checkpoints.folder)));
  if (!tables.empty()) TUTTI_TRY(of_option("--table-folder", try_folder(tables)));
  if (world.rank() != 0) return {};
  if (!report.tensor_board.empty() || report.profiling || report.compute_graph)
    TUTTI_TRY(of_option("--out-dir", make_writable_folder(report.out_dir)));
  return report.save_model.empty() ? Status() : of_option("--save-model", make_writable_folder(report.save_model));
}

}  // namespace

RunResult run(const Group& world, const Options& options, const Architecture& architecture, Sources& sources,
              const CheckpointerOptions& checkpoints) {
  prepare_compute(world);
  agree(world, check_folders(world, options, checkpoints)).or_throw();
  std::optional<DlrmTask> task;
  report_device_errors(world, "while the model was made", nullptr,
                       [&] { task.emplace(world, options, architecture, sources); });
  write_graph(world, options.report, architecture);
  Trainer trainer(world, *task,
                  {.checkpoints = checkpoints, .line_seconds = -1, .record = recorder_options(world, options.report)});
  task->run_part("before the first step", [&] { task->prepare(); });
  return task->result(trainer.run());
}

}  // namespace tutti::dlrm
