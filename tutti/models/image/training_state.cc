#include "tutti/models/image/training_state.h"

#include <fmt/format.h>

#include "tutti/base/log.h"
#include "tutti/checkpoint/facts.h"
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

void tell_layout(const CheckpointReader& saved, const CheckpointValues& now) {
  const auto words = [](const CheckpointValues& layout) {
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
  return boxes;
}

CheckpointFacts ImageTrainingState::facts(const ImageProgress& progress) const {
  CheckpointFacts facts{.step = progress.steps};
  facts.data = identity_of(options_, samples_);
  facts.data["epoch"] = progress.epoch;
  facts.data["position"] = std::int64_t(progress.position);
  facts.values = {{"model", options_.model}, {"optimizer", std::string(name(options_.rule))}};
  facts.values["left_out"] = weights_.left_out();
  if (const auto scale = weights_.scale()) {
    facts.values["loss_scale"] = scale->scale;
    facts.values["loss_scale_good_steps"] = scale->good_steps;
  }
  facts.layout = layout_of(world_, options_);
  return facts;
}

Result<ImageProgress> ImageTrainingState::load(const CheckpointReader& saved) const {
  const auto parts = weights_.own_state();
  auto wanted = expected_tensors(model_);
  for (auto& tensor : expected_tensors(parts)) wanted.push_back(std::move(tensor));
  TUTTI_TRY(saved.expect(wanted));
  TUTTI_TRY(expect_same(saved, identity_of(options_, samples_)));
  TUTTI_TRY(read_module(saved, model_));
  TUTTI_TRY(read_state(saved, parts));
  const auto& [data, values] = std::tie(saved.facts().data, saved.facts().values);
  std::optional<LossScaler::State> scale;
  if (const auto found = real_number(values, "loss_scale"))
    scale = {.scale = *found, .good_steps = whole_number(values, "loss_scale_good_steps").value_or(0)};
  weights_.restore(whole_number(values, "left_out").value_or(0), scale);
  if (world_.rank() == 0) tell_layout(saved, layout_of(world_, options_));
  return ImageProgress{
      .steps = saved.facts().step,
      .epoch = whole_number(data, "epoch").value_or(0),
      .position = std::uint64_t(std::max<std::int64_t>(0, whole_number(data, "position").value_or(0)))};
}

}  // namespace tutti
