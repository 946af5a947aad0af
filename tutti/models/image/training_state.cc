#include "tutti/models/image/training_state.h"

#include <fmt/format.h>

#include "tutti/base/log.h"
#include "tutti/checkpoint/data_position.h"
#include "tutti/checkpoint/format/manifest.h"
#include "tutti/tensor/module_state.h"

namespace tutti {
namespace {

// What two runs have to have in common to be one.
CheckpointValues identity_of(const ImageTrainingOptions& options, std::size_t samples) {
  return {{"seed", std::int64_t(options.seed)}, {"samples", std::int64_t(samples)}};
}

// What decides how many samples make a step, and in which order gradients are added.
CheckpointValues layout_of(const Group& world, const ImageTrainingOptions& options) {
  return {{"ranks", std::int64_t(world.size())},
          {"logical_ranks", std::int64_t(options.parallel.logical_ranks)},
          {"batch_size", std::int64_t(options.batch_size)},
          {"accumulate", std::int64_t(options.accumulate)}};
}

Status expect_same(const CheckpointReader& saved, const CheckpointValues& wanted) {
  for (const auto& [name, value] : wanted) {
    const auto found = whole_number(saved.facts().data, name);
    const auto given = std::get<std::int64_t>(value);
    if (found && *found == given) continue;
    return Error{.code = Code::kMismatch,
                 .detail = fmt::format("the checkpoint {} is of another run: its {} is {}, and {} is given",
                                       saved.folder(), name, found ? std::to_string(*found) : "not there", given),
                 .hint = "go on with the data and the --seed of the run that saved it, or save to another folder"};
  }
  return {};
}

// Before its tensors, whose names would say the same at length. An imported checkpoint may not say it.
Status expect_same_kind(const CheckpointReader& saved, const ImageTrainingOptions& options) {
  const std::pair<const char*, std::string> given[] = {{"model", options.model},
                                                       {"optimizer", std::string(name(options.rule))}};
  for (const auto& [option, value] : given) {
    const auto found = saved.facts().values.find(option);
    const auto* const was = found == saved.facts().values.end() ? nullptr : std::get_if<std::string>(&found->second);
    if (!was || *was == value) continue;
    return Error{
        .code = Code::kMismatch,
        .detail = fmt::format("the checkpoint {} is of another run: its {} is {}, and {} is given", saved.folder(),
                              option, *was, value),
        .hint = fmt::format("go on with the --{} of the run that saved it, or save to another folder", option)};
  }
  return {};
}

// The other way round PowerSGD begins with nothing kept back.
Status expect_same_compression(const CheckpointReader& saved, const PowerSgd* power_sgd) {
  if (power_sgd || PowerSgd::expected_tensors(saved).empty()) return {};
  return Error{.code = Code::kMismatch,
               .detail = fmt::format("the checkpoint {} is of a run with --compress powersgd: what that kept back of "
                                     "the gradients would be lost",
                                     saved.folder()),
               .hint = "go on with --compress powersgd"};
}

PowerSgd::Progress power_sgd_progress(const CheckpointValues& values) {
  return {.steps = whole_number(values, "power_sgd_steps").value_or(0),
          .draws = whole_number(values, "power_sgd_draws").value_or(0),
          .error_scale = real_number(values, "power_sgd_error_scale").value_or(1),
          .q_scale = real_number(values, "power_sgd_q_scale").value_or(1)};
}

Result<ImageProgress> progress_of(const CheckpointReader& saved) {
  ImageProgress progress{.steps = saved.facts().step};
  progress.epoch = TUTTI_TRY(place_in_data(saved, "epoch"));
  progress.epoch_steps = TUTTI_TRY(place_in_data(saved, "epoch_steps", -1));
  progress.position = std::uint64_t(TUTTI_TRY(place_in_data(saved, "position")));
  return progress;
}

void tell_layout(const CheckpointReader& saved, const CheckpointValues& now) {
  const auto words = [](const CheckpointValues& layout) -> std::string {
    if (!layout.contains("ranks")) return "a program that does not say on how many ranks";  // as tutti ckpt import
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
  log::info(fmt::format("saved by {}, goes on with {}: close to what it would have become, not the same bits",
                        words(saved.facts().layout), words(now)));
}

}  // namespace

std::vector<SavedBox> ImageTrainingState::boxes() const {
  auto boxes = saved_boxes(model_);
  for (auto& box : saved_boxes(weights_.own_state())) boxes.push_back(std::move(box));
  if (!power_sgd_) return boxes;
  for (auto& box : saved_boxes(power_sgd_->own_state(world_, weights_.last_was_left_out()).parts))
    boxes.push_back(std::move(box));
  return boxes;
}

std::vector<SavedBox> ImageTrainingState::wanted_boxes() const {
  auto wanted = boxes();
  if (!power_sgd_) return wanted;
  for (auto& box : power_sgd_->wanted_boxes(world_, parameters_of(model_))) wanted.push_back(std::move(box));
  return wanted;
}

CheckpointFacts ImageTrainingState::facts(const ImageProgress& progress) const {
  CheckpointFacts facts{.step = progress.steps};
  facts.data = identity_of(options_, samples_);
  facts.data["epoch"] = progress.epoch;
  facts.data["epoch_steps"] = progress.epoch_steps;
  facts.data["position"] = std::int64_t(progress.position);
  facts.values = {{"model", options_.model}, {"optimizer", std::string(name(options_.rule))}};
  facts.values["left_out"] = weights_.left_out();
  if (const auto scale = weights_.scale()) {
    facts.values["loss_scale"] = scale->scale;
    facts.values["loss_scale_good_steps"] = scale->good_steps;
  }
  if (power_sgd_) {
    const auto now = power_sgd_->own_state(world_, weights_.last_was_left_out()).progress;
    facts.values["power_sgd_steps"] = now.steps;
    facts.values["power_sgd_draws"] = now.draws;
    facts.values["power_sgd_error_scale"] = now.error_scale;
    facts.values["power_sgd_q_scale"] = now.q_scale;
  }
  facts.layout = layout_of(world_, options_);
  return facts;
}

Result<ImageProgress> ImageTrainingState::load(const CheckpointReader& saved) const {
  TUTTI_TRY(expect_same_kind(saved, options_));
  const auto parts = weights_.own_state();
  auto wanted = expected_tensors(model_);
  for (auto& tensor : expected_tensors(parts)) wanted.push_back(std::move(tensor));
  if (power_sgd_)
    for (auto& tensor : PowerSgd::expected_tensors(saved)) wanted.push_back(std::move(tensor));
  TUTTI_TRY(expect_same_compression(saved, power_sgd_));
  TUTTI_TRY(saved.expect(wanted));
  TUTTI_TRY(expect_same(saved, identity_of(options_, samples_)));
  const ImageProgress progress = TUTTI_TRY(progress_of(saved));
  TUTTI_TRY(read_module(saved, model_));
  TUTTI_TRY(read_state(saved, parts));
  const CheckpointValues& values = saved.facts().values;
  if (power_sgd_) TUTTI_TRY(power_sgd_->load(saved, power_sgd_progress(values), world_, parameters_of(model_)));
  std::optional<LossScaler::State> scale;
  if (const auto found = real_number(values, "loss_scale"))
    scale = {.scale = *found, .good_steps = whole_number(values, "loss_scale_good_steps").value_or(0)};
  weights_.restore(whole_number(values, "left_out").value_or(0), scale);
  if (world_.rank() == 0) tell_layout(saved, layout_of(world_, options_));
  return progress;
}

}  // namespace tutti
