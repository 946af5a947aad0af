// The loop of dlrm_s_pytorch.py. What ranks know only in part (losses, hits) is kept as sums and added up over the
// ranks where a line is printed, so a printed loss is that of the whole batches; in between a rank only looks at its
// own.
#include "tutti/models/dlrm/training.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <ctime>
#include <optional>

#include "tutti/base/clock.h"
#include "tutti/comm/collectives.h"
#include "tutti/models/dlrm/batches.h"
#include "tutti/models/dlrm/debug.h"
#include "tutti/models/dlrm/learning_rate.h"
#include "tutti/models/dlrm/loss.h"
#include "tutti/models/dlrm/model.h"
#include "tutti/models/dlrm/printed_lines.h"
#include "tutti/models/dlrm/printer.h"
#include "tutti/tensor/compute.h"

namespace tutti::dlrm {
namespace {

constexpr std::int64_t kWarmUpSteps = 2;  // not timed for RunResult

ModelOptions model_options(const Group& world, const Options& options) {
  ModelOptions made{.optimizer = options.training.optimizer, .type = options.training.type};
  made.tables.lr = options.training.learning_rate;
  if (options.training.reference_gradient_scale) made.tables.gradient_scale = double(world.size());
  return made;
}

template <class T>
std::span<T> span_of(const at::Tensor& tensor) {
  return {tensor.data_ptr<T>(), std::size_t(tensor.numel())};
}

at::Tensor tensor_of(const std::vector<float>& values, std::vector<std::int64_t> shape, at::ScalarType type) {
  return at::from_blob(const_cast<float*>(values.data()), shape, at::kFloat).to(type);  // float: no copy
}

LossSums loss_of(const LossOptions& options, const at::Tensor& predictions, const at::Tensor& targets, double divisor,
                 const at::Tensor& gradient) {
  if (predictions.scalar_type() == at::kDouble) {
    return loss_of<double>(options, span_of<double>(predictions), span_of<double>(targets), divisor,
                           gradient.defined() ? span_of<double>(gradient) : std::span<double>());
  }
  return loss_of<float>(options, span_of<float>(predictions), span_of<float>(targets), divisor,
                        gradient.defined() ? span_of<float>(gradient) : std::span<float>());
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
  double loss = 0, seconds = 0;
  std::int64_t samples = 0, batches = 0;
};

class Training {
 public:
  Training(const Group& world, const Options& options, const Architecture& architecture, Sources& sources)
      : world_(world),
        options_(options),
        printer_(world, options.report.print_all),
        model_(world, architecture, place_by_count(table_specs(architecture, 1), world.size()),
               model_options(world, options)),
        train_(*sources.train, architecture, reading(options.data.workers, options.training.accumulate)),
        test_(*sources.test, architecture,
              reading(options.data.test_workers < 0 ? options.data.workers : options.data.test_workers, 1)),
        rate_{options.training.learning_rate, options.training.warmup_steps, options.training.decay_start,
              options.training.decay_steps} {}

  RunResult run(Sources& sources) {
    const auto& report = options_.report;
    if (report.debug) {
      printer_.line(architecture_text(model_.architecture(), feature_dims()));
      print_data(printer_, *sources.train, train_.batches(), report.print_precision);
    }
    model_.draw_weights(std::uint32_t(options_.training.seed));
    if (report.debug) {
      printer_.line("initial parameters (weights and bias):");
      print_parameters(printer_, model_, report.print_precision);
      printer_.line(model_text(model_.architecture()));
    }
    printer_.line("time/loss/accuracy (if enabled):");
    while (epoch_ < options_.training.epochs) {
      if (!train_epoch()) break;
      ++epoch_;
    }
    if (report.debug) {
      printer_.line("updated parameters (weights and bias):");
      print_parameters(printer_, model_, report.print_precision);
    }
    if (result_.seconds > 0) result_.samples_per_s = timed_samples_ / result_.seconds;
    return result_;
  }

 private:
  Reading reading(std::int64_t ahead, std::int64_t accumulate) {
    return {.rank = world_.rank(),
            .ranks = world_.size(),
            .my_tables = model_.tables().my_tables(),
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

  // Whether to go on.
  bool train_epoch() {
    std::int64_t batch = 0;
    while (batch < train_.batches()) {
      const StepBatch& step = train_.next();
      const auto begin = now();
      const auto losses = train_step(step);
      const double seconds = seconds_since(begin);
      note_time(step, seconds);
      for (std::size_t part = 0; part < step.sizes.size(); ++part) {
        totals_.loss += losses[part].loss;
        totals_.samples += step.sizes[part];
        totals_.seconds += seconds / double(step.sizes.size());
        ++totals_.batches;
        if (!after_batch({.batch = ++batch, .batches = train_.batches(), .epoch = epoch_})) return false;
      }
    }
    return true;
  }

  // By batch of the step, what its samples here lost.
  std::vector<LossSums> train_step(const StepBatch& step) {
    const auto views = step.views();
    const auto rows = step.mine.size();
    const auto predictions =
        model_.forward({.samples = step.samples,
                        .dense = tensor_of(step.dense, {rows, model_.architecture().dense_features()}, model_.type()),
                        .lookups = views,
                        .number = step.first});
    const auto targets = tensor_of(step.targets, {rows, 1}, model_.type());
    const auto gradient = at::empty_like(predictions);
    std::vector<LossSums> losses;
    std::int64_t before = 0, done = 0;
    for (auto size : step.sizes) {
      const auto end = std::clamp<std::int64_t>(before + size - step.mine.begin, done, rows);
      losses.push_back(loss_of(options_.loss, predictions.narrow(0, done, end - done),
                               targets.narrow(0, done, end - done), double(step.samples),
                               gradient.narrow(0, done, end - done)));
      refuse_nan(losses.back().loss, step.first + std::int64_t(losses.size()));
      done = end;
      before += size;
    }
    model_.learn(gradient, rate_.at(++steps_));
    return losses;
  }

  void refuse_nan(double loss, std::int64_t batch) {
    if (std::isfinite(loss)) return;
    Error error{.code = Code::kAborted,
                .detail = fmt::format("the loss of batch {} of epoch {} is {} in the samples of rank {}", batch, epoch_,
                                      std::isnan(loss) ? "not a number" : "infinite", world_.rank()),
                .hint = fmt::format("the learning rate is {} there: a smaller one, --lr-num-warmup-steps or "
                                    "--loss-threshold may help",
                                    rate_.at(steps_ + 1)),
                .group = world_.name(),
                .rank = world_.rank()};
    throw Exception(std::move(error));
  }

  void note_time(const StepBatch& step, double seconds) {
    if (++result_.steps <= kWarmUpSteps) return;
    result_.seconds += seconds;
    timed_samples_ += double(step.samples);
  }

  // Prints what is due after a batch. Whether to go on.
  bool after_batch(const Progress& progress) {
    const auto& report = options_.report;
    const bool last = progress.batch == progress.batches;
    const bool should_test = report.test_freq > 0 && (progress.batch % report.test_freq == 0 || last);
    if (progress.batch % report.print_freq == 0 || last || should_test) print_progress(progress);
    return true;
  }

  void print_progress(const Progress& progress) {
    std::array<double, 1> sums = {totals_.loss};
    if (world_.size() > 1) all_reduce(world_, std::span<double>(sums));
    result_.last_loss = sums[0] / double(totals_.samples);
    const double ms = options_.report.print_time ? 1e3 * totals_.seconds / double(totals_.batches) : -1;
    printer_.line(
        progress_line(progress, false, ms, result_.last_loss, wall_time_text(options_.report.print_wall_time)));
    totals_ = {};
  }

  const Group& world_;
  const Options& options_;
  Printer printer_;
  Model model_;
  BatchReader train_, test_;
  LearningRate rate_;
  std::int64_t epoch_ = 0, steps_ = 0;
  Totals totals_;
  RunResult result_;
  double timed_samples_ = 0;
};

}  // namespace

RunResult run(const Group& world, const Options& options, const Architecture& architecture, Sources& sources) {
  prepare_compute(world);
  Training training(world, options, architecture, sources);
  return training.run(sources);
}

}  // namespace tutti::dlrm
