// The loop of dlrm_s_pytorch.py. What ranks know only in part (losses, hits) is kept as sums and added up over the
// ranks where a line is printed, so a printed loss is that of the whole batches; in between a rank only looks at its
// own.
#include "tutti/models/dlrm/training.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <ctime>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/io/replace_file.h"
#include "tutti/checkpoint/job_checkpoints.h"
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
#include "tutti/models/dlrm/recorder.h"
#include "tutti/models/dlrm/saved_model.h"
#include "tutti/models/dlrm/tensors.h"
#include "tutti/tensor/compute.h"
#include "tutti/trace/region.h"

namespace tutti::dlrm {
namespace {

constexpr std::int64_t kDlrmWarmUpSteps = 2;  // not timed for RunResult

ModelOptions model_options(const Group& world, const Options& options) {
  ModelOptions made{.optimizer = options.training.optimizer, .type = options.training.type};
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

class DlrmTraining {
 public:
  DlrmTraining(const Group& world, const Options& options, const Architecture& architecture, Sources& sources,
               const JobCheckpointOptions& checkpoints)
      : world_(world),
        options_(options),
        printer_(world, options.report.print_all),
        recorder_(world, options),
        model_(world, architecture, placed(architecture), model_options(world, options)),
        source_(*sources.train),
        train_(*sources.train, architecture, reading(options.data.workers, options.training.accumulate)),
        test_(*sources.test, architecture,
              reading(options.data.test_workers < 0 ? options.data.workers : options.data.test_workers, 1)),
        rate_{options.training.learning_rate, options.training.warmup_steps, options.training.decay_start,
              options.training.decay_steps},
        checkpoints_(world, checkpoints),
        print_freq_(options.report.print_freq),
        test_freq_(options.report.test_freq),
        timer_(options.report.mlperf_logging ? IterationSpan::kBatchToBatch : IterationSpan::kStep) {}

  RunResult run() {
    const auto& placement = options_.placement;
    if (placement.wire != WireFormat::kExact && world_.nodes() == 1 && !placement.links_only && world_.rank() == 0)
      log::warn(
          fmt::format("--wire {} changes nothing: all ranks share a host and its memory; --no-shared-tables "
                      "sends rows all the same",
                      placement.wire == WireFormat::kBF16 ? "bf16" : "int8"));
    recorder_.write_graph(model_.architecture());
    prepare();
    printer_.line("time/loss/accuracy (if enabled):");
    if (options_.inference.only) {
      infer();
    } else {
      train();
    }
    recorder_.write_profile();
    if (result_.seconds > 0) result_.samples_per_s = timed_samples_ / result_.seconds;
    return result_;
  }

 private:
  TablePlacement placed(const Architecture& architecture) {
    const auto lookups =
        options_.data.generation == DataGeneration::kDataset
            ? 1.0
            : double(options_.data.indices_per_lookup) * (options_.data.indices_per_lookup_fixed ? 1 : 0.5);
    auto placing = place_tables(options_, table_specs(architecture, lookups), world_.size()).or_throw();
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

  // Weights, and all that is printed before the first batch.
  void prepare() {
    const auto& report = options_.report;
    if (report.debug) {
      train_.stop();  // the source has one reader at a time
      printer_.line(architecture_text(model_.architecture(), feature_dims()));
      print_data(printer_, source_, train_.batches(), report.print_precision);
    }
    const auto saved = checkpoints_.resume(boxes());
    if (saved) {
      printer_.line("Loading saved model " + saved->folder());
      auto state = load_model(*saved, model_, !options_.inference.only);
      agree(world_, state.status()).or_throw();
      take_up(saved->folder(), *state);
    } else if (report.load_model.empty()) {
      model_.draw_weights(std::uint32_t(options_.training.seed));
    } else {
      printer_.line("Loading saved model " + report.load_model);
      take_up(report.load_model, load_model(world_, report.load_model, model_, !options_.inference.only).or_throw());
    }
    checkpoints_.prepare(boxes());
    model_.quantise(options_.inference.mlp_bits, options_.inference.table_bits);
    if (model_.packed_bytes() > 0)
      printer_.line(
          fmt::format("Tables of {} bits take {}", options_.inference.table_bits, bytes_text(model_.packed_bytes())));
    if (report.debug) {
      printer_.line("initial parameters (weights and bias):");
      print_parameters(printer_, model_, report.print_precision);
      printer_.line(model_text(model_.architecture()));
    }
  }

  std::vector<std::int64_t> feature_dims() const {
    std::vector<std::int64_t> dims;
    for (const auto& feature : model_.architecture().features)
      dims.push_back(model_.architecture().tables[feature.table].dim);
    return dims;
  }

  void take_up(const std::string& path, const SavedState& saved) {
    printer_.line(fmt::format("Saved at: epoch = {}/{}, batch = {}/{}, ntbatch = {}", saved.epoch, saved.epochs,
                              saved.batch, saved.batches, saved.test_batches));
    printer_.line(fmt::format("Training state: loss = {:.6f}", saved.train_loss));
    printer_.line(fmt::format("Testing state: accuracy = {:3.3f} %", 100 * saved.test_accuracy));
    if (options_.inference.only) {
      print_freq_ = std::max<std::int64_t>(1, saved.batches);
      test_freq_ = 0;
      return;
    }
    if (saved.batch > 0 && (saved.batch_size != options_.training.batch || saved.batches != train_.batches())) {
      throw Exception(Error{
          .code = Code::kUsage,
          .detail =
              fmt::format("{} was saved after {} of {} batches of {} samples, and an epoch now has {} of {}", path,
                          saved.batch, saved.batches, saved.batch_size, train_.batches(), options_.training.batch),
          .hint = "go on with the same --mini-batch-size and data, or load a model that was saved at an epoch's end"});
    }
    state_ = saved;
    loaded_from_ = path;
    totals_ = {
        .loss = world_.rank() == 0 ? saved.loss_sum : 0, .samples = saved.loss_samples, .batches = saved.loss_batches};
  }

  void train() {
    const auto epochs = options_.training.epochs;
    if (state_.epoch >= epochs && world_.rank() == 0) {
      log::warn(fmt::format("{} has {} epochs behind it, and --nepochs is {}: nothing is left to train", loaded_from_,
                            state_.epoch, epochs));
    }
    bool going = true;
    while (going && state_.epoch < epochs) {
      going = train_epoch();
      if (!going || state_.batch < train_.batches()) break;
      state_.batch = 0;
      ++state_.epoch;
    }
    const auto& report = options_.report;
    if (!report.save_model.empty() && test_freq_ <= 0 && saved_at_ != state_.steps && !result_.stopped) save();
    if (checkpoints_.saves() && kept_at_ != state_.steps) keep();
    checkpoints_.finish();
    if (report.debug) {
      printer_.line("updated parameters (weights and bias):");
      print_parameters(printer_, model_, report.print_precision);
    }
  }

  // From state_.batch on. Whether to go on.
  bool train_epoch() {
    train_.seek(state_.batch, state_.epoch);
    timer_.pause();
    while (state_.batch < train_.batches()) {
      const StepBatch& step = train_.next();
      world_.step(state_.steps + 1);
      const auto begin = now();
      timer_.begin(begin);
      const auto losses = train_step(step);
      const auto end = now();
      const double seconds = timer_.end(end);
      note_time(step, to_seconds(end - begin));
      for (std::size_t part = 0; part < step.sizes.size(); ++part) {
        totals_.loss += losses[part].loss;
        totals_.samples += step.sizes[part];
        totals_.seconds += seconds / double(step.sizes.size());
        ++totals_.batches;
        ++state_.batch;
        const bool whole_step = part + 1 == step.sizes.size();
        if (!after_batch(whole_step)) return false;
      }
    }
    return true;
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
    throw Exception(
        Error{.code = Code::kAborted,
              .detail = fmt::format("the loss of batch {} of epoch {} is {} in the samples of rank {}", batch,
                                    state_.epoch, std::isnan(loss) ? "not a number" : "infinite", world_.rank()),
              .hint = fmt::format("the learning rate is {} there: a smaller one, --lr-num-warmup-steps or "
                                  "--loss-threshold may help",
                                  rate_.at(state_.steps + 1)),
              .group = world_.name(),
              .rank = world_.rank()});
  }

  void note_time(const StepBatch& step, double seconds) {
    if (++result_.steps <= kDlrmWarmUpSteps) return;
    result_.seconds += seconds;
    timed_samples_ += double(step.samples);
  }

  bool due(std::int64_t every) const {
    return every > 0 && (state_.batch % every == 0 || state_.batch == train_.batches());
  }

  // What is due after a batch. Whether to go on. In the midst of a step of several batches the weights are those of its
  // end already, so a test or a save waits for that.
  bool after_batch(bool whole_step) {
    const bool should_test = due(test_freq_);
    if (should_test) test_waits_ = true;
    if (due(options_.report.save_freq)) save_waits_ = true;
    if (due(print_freq_) || should_test) print_progress();
    if (!whole_step) return true;
    bool going = true;
    if (std::exchange(test_waits_, false)) going = test();
    if (std::exchange(save_waits_, false) && saved_at_ != state_.steps) save();
    const bool last = !going || (state_.batch == train_.batches() && state_.epoch + 1 >= options_.training.epochs);
    const auto due = checkpoints_.after(state_.steps, last);
    if (due.save) keep();
    if (due.copy) checkpoints_.copy(boxes(), facts_of(world_, model_, state_to_save()));
    result_.stopped = due.stop && !last;
    return going && !due.stop;
  }

  Progress progress() const { return {.batch = state_.batch, .batches = train_.batches(), .epoch = state_.epoch}; }
  std::int64_t log_step() const { return train_.batches() * state_.epoch + state_.batch; }

  // Of all ranks, since the last line.
  double loss_of_all() const { return world_.size() > 1 ? all_reduce(world_, totals_.loss) : totals_.loss; }

  void print_progress() {
    state_.train_loss = result_.last_loss = loss_of_all() / double(totals_.samples);
    const double ms = options_.report.print_time ? 1e3 * totals_.seconds / double(totals_.batches) : -1;
    printer_.line(
        progress_line(progress(), false, ms, result_.last_loss, wall_time_text(options_.report.print_wall_time)));
    recorder_.train_loss(result_.last_loss, log_step());
    totals_ = {};
  }

  // Whether to go on.
  bool test() {
    printer_.line(testing_line(progress()));
    auto scores = evaluate(world_, model_, test_, options_.loss, options_.report.mlperf_logging).scores;
    const bool better =
        options_.report.mlperf_logging ? scores.auc > state_.best_auc : scores.accuracy > state_.best_accuracy;
    state_.test_accuracy = result_.accuracy = scores.accuracy;
    result_.auc = scores.auc;
    scores.best_accuracy = state_.best_accuracy = std::max(state_.best_accuracy, scores.accuracy);
    scores.best_auc = state_.best_auc = std::max(state_.best_auc, scores.auc);
    printer_.line(scores_line(scores));
    recorder_.test_scores(scores, log_step());
    timer_.pause();
    if (better && !options_.report.save_model.empty()) save();
    return !reached("accuracy", options_.report.accuracy_threshold, scores.best_accuracy) &&
           !reached("auc", options_.report.auc_threshold, scores.best_auc);
  }

  bool reached(const char* what, double threshold, double best) const {
    if (threshold <= 0 || best <= threshold) return false;
    printer_.line(fmt::format("MLPerf testing {} threshold {} reached, stop training", what, threshold));
    return true;
  }

  void save() {
    const auto& folder = options_.report.save_model;
    if (folder.empty()) return;
    printer_.line("Saving model to " + folder);
    save_model(world_, folder, model_, state_to_save()).or_throw();
    saved_at_ = state_.steps;
  }

  // What a checkpoint has of the model: nothing where it is only asked, with tables that may be packed.
  std::vector<SavedBox> boxes() { return options_.inference.only ? std::vector<SavedBox>{} : boxes_of(model_); }

  // Into --save-dir.
  void keep() {
    checkpoints_.save(boxes(), facts_of(world_, model_, state_to_save()));
    kept_at_ = state_.steps;
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
    const auto after = [&](std::int64_t batch, double loss, std::int64_t samples, double seconds) {
      totals_.loss += loss;
      totals_.samples += samples;
      totals_.seconds += seconds;
      ++totals_.batches;
      if (++result_.steps > kDlrmWarmUpSteps) {
        result_.seconds += seconds;
        timed_samples_ += double(samples);
      }
      if (batch % print_freq_ != 0 && batch != test_.batches()) return;
      const double ms = options_.report.print_time ? 1e3 * totals_.seconds / double(totals_.batches) : -1;
      printer_.line(progress_line({.batch = batch, .batches = test_.batches()}, true, ms,
                                  loss_of_all() / double(totals_.samples),
                                  wall_time_text(options_.report.print_wall_time)));
      totals_ = {};
    };
    const auto found = evaluate(world_, model_, test_, options_.loss, options_.report.mlperf_logging, after);
    auto scores = found.scores;
    scores.best_accuracy = scores.accuracy;
    scores.best_auc = scores.auc;
    printer_.line(scores_line(scores));
    result_.last_loss = found.loss;
    result_.accuracy = scores.accuracy;
    result_.auc = scores.auc;
  }

  const Group& world_;
  const Options& options_;
  Printer printer_;
  Recorder recorder_;
  Model model_;
  ClickSource& source_;
  BatchReader train_, test_;
  LearningRate rate_;
  JobCheckpoints checkpoints_;
  std::int64_t print_freq_, test_freq_;
  IterationTimer timer_;
  SavedState state_;  // where training stands
  std::string loaded_from_;
  std::int64_t saved_at_ = -1, kept_at_ = -1;  // the steps, in --save-model and in --save-dir
  bool test_waits_ = false, save_waits_ = false;
  Totals totals_;
  RunResult result_;
  double timed_samples_ = 0;
};

// Better asked before tables are filled than after it.
Status check_places(const Options& options, const JobCheckpointOptions& checkpoints) {
  const std::string& tables = options.placement.folder;
  if (!checkpoints.folder.empty()) TUTTI_TRY(of_option("--save-dir", make_writable_folder(checkpoints.folder)));
  return tables.empty() ? Status() : of_option("--table-folder", try_folder(tables));
}

}  // namespace

RunResult run(const Group& world, const Options& options, const Architecture& architecture, Sources& sources,
              const JobCheckpointOptions& checkpoints) {
  prepare_compute(world);
  agree(world, check_places(options, checkpoints)).or_throw();
  return DlrmTraining(world, options, architecture, sources, checkpoints).run();
}

}  // namespace tutti::dlrm
