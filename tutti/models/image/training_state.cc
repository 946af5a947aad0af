#include "tutti/models/image/training_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/log.h"
#include "tutti/checkpoint/io/reader.h"
#include "tutti/tensor/module_state.h"
#include "tutti/training/same_run.h"

namespace tutti {
namespace {

// What decides how many samples make a step, and in which order gradients are added.
CheckpointValues layout_of(const Group& world, const ImageTrainingOptions& options) {
  return {{"ranks", std::int64_t(world.size())},
          {"logical_ranks", std::int64_t(options.parallel.logical_ranks)},
          {"batch_size", std::int64_t(options.batch_size)},
          {"accumulate", std::int64_t(options.accumulate)}};
}

// Before tensors are compared, whose names would say the same at length. An imported checkpoint may not have them.
Status check_same_kind(const CheckpointReader& saved, const ImageTrainingOptions& options) {
  return check_same_run(
      saved, saved.facts().values,
      {{.name = "model", .option = "--model", .given = options.model, .may_lack = true},
       {.name = "optimizer", .option = "--optimizer", .given = std::string(name(options.rule)), .may_lack = true}});
}

// The other way round PowerSGD begins with nothing kept back.
Status check_same_compression(const CheckpointReader& saved, const PowerSgd* power_sgd) {
  const auto& tensors = saved.manifest().tensors;
  const bool has_errors = std::any_of(tensors.begin(), tensors.end(),
                                      [](const auto& tensor) { return tensor.first.state.starts_with("power_sgd_"); });
  if (power_sgd || !has_errors) return {};
  return Error{.code = Code::kMismatch,
               .detail = fmt::format("the checkpoint {} is of a run with --compress powersgd: the gradient errors that "
                                     "it kept would be lost",
                                     saved.folder()),
               .hint = "resume with --compress powersgd"};
}

void log_layout(const CheckpointReader& saved, const CheckpointValues& now) {
  const auto words = [](const CheckpointValues& layout) -> std::string {
    if (!layout.contains("ranks")) return "a program that did not record its number of ranks";  // as tutti ckpt import
    const auto number = [&](const char* name) { return whole_number(layout, name).value_or(0); };
    const auto ranks = number("ranks"), logical = number("logical_ranks");
    return fmt::format("{} rank{}{} with {} x {} samples a step", ranks, ranks == 1 ? "" : "s",
                       logical > 0 ? fmt::format(" ({} logical)", logical) : "", number("accumulate"),
                       number("batch_size"));
  };
  const auto of_a_step = [](CheckpointValues layout) {  // which processes compute for the logical ranks is the same
    layout.erase("hosts");                              // and where
    if (whole_number(layout, "logical_ranks").value_or(0) > 0) layout["ranks"] = std::int64_t(0);
    return layout;
  };
  if (of_a_step(saved.facts().layout) == of_a_step(now)) return;
  log::info(fmt::format("saved by {}, resuming with {}: the results will be close, but not bit-identical",
                        words(saved.facts().layout), words(now)));
}

}  // namespace

void ImageTrainingState::state(StateDict& dict, ImageProgress& progress) const {
  dict.add("model", model_);
  weights_.state(dict);
  if (power_sgd_) power_sgd_->state(dict, world_, parameters_of(model_), weights_.last_was_skipped());
  dict.data("epoch", progress.epoch);
  dict.data("epoch_steps", progress.epoch_steps, -1);
  dict.data("position", progress.position);
  CheckpointFacts& facts = dict.facts();
  facts.data["seed"] = std::int64_t(options_.seed);
  facts.data["samples"] = std::int64_t(samples_);
  facts.values["model"] = options_.model;
  facts.values["optimizer"] = std::string(name(options_.rule));
  facts.layout = layout_of(world_, options_);
  if (!dict.loading()) return;
  dict.check([this](const CheckpointReader& saved) -> Status {
    TUTTI_TRY(check_same_kind(saved, options_));
    TUTTI_TRY(check_same_compression(saved, power_sgd_));
    return check_same_run(
        saved, saved.facts().data,
        {{.name = "seed", .option = "--seed", .given = std::int64_t(options_.seed)},
         {.name = "samples", .option = "the number of training samples", .given = std::int64_t(samples_)}});
  });
  dict.after_load([this, &progress](const CheckpointReader& saved) {
    progress.steps = saved.facts().step;
    if (world_.rank() == 0) log_layout(saved, layout_of(world_, options_));
    return Status();
  });
}

}  // namespace tutti
