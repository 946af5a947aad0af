// A parameter is saved as this rank's boxes of the whole. What the optimizer keeps for it is a run of elements of this
// rank's tensor (all of them, or with a sharded optimizer some), which is cut into boxes of that tensor, and these into
// boxes of the whole.
#include "tutti/models/gpt/training_state.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "tutti/base/log.h"
#include "tutti/checkpoint/data_position.h"
#include "tutti/checkpoint/format/manifest.h"
#include "tutti/models/gpt/same_data.h"
#include "tutti/models/transformer/same_model.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti::gpt {
namespace {

// Where the boxes of a layout lie in this rank's tensor, one after another along its dimension.
struct PlacedBox {
  TensorBox here, whole;
};
std::vector<PlacedBox> boxes_in_tensor(const ParameterLayout& layout) {
  if (!layout.divided()) return {{TensorBox::whole(layout.shape), TensorBox::whole(layout.shape)}};
  std::vector<PlacedBox> placed;
  std::uint64_t begin = 0;
  const auto dimension = std::size_t(layout.dimension);
  for (const TensorBox& box : layout.boxes) {
    if (box.elements() == 0) continue;
    TensorBox here{TensorShape(box.begin.size(), 0), box.extent};
    here.begin[dimension] = begin;
    begin += box.extent[dimension];
    placed.push_back({here, box});
  }
  return placed;
}

// What of `run`, a box of this rank's tensor whose elements lie packed at `data`, is in `placed`.
std::optional<SavedBox> saved_box(const TensorBox& run, std::byte* data, const PlacedBox& placed,
                                  const ParameterLayout& layout, TensorKey key, DType dtype) {
  const auto common = run.common(placed.here);
  if (!common) return {};
  const auto size = size_of(dtype);
  const std::uint64_t row = run.row_elements();
  std::uint64_t offset = 0, inner = row;  // in elements, of the first one that is common
  for (std::size_t d = 0; d < run.begin.size(); ++d) {
    if (d > 0) inner /= run.extent[d];
    offset += (common->begin[d] - run.begin[d]) * inner;
  }
  TensorBox box = *common;
  for (std::size_t d = 0; d < box.begin.size(); ++d) box.begin[d] += placed.whole.begin[d] - placed.here.begin[d];
  return SavedBox{.key = std::move(key),
                  .dtype = dtype,
                  .shape = layout.shape,
                  .box = std::move(box),
                  .data = data + offset * size,
                  .row_stride = std::size_t(row) * size};
}

void append_state(std::vector<SavedBox>& boxes, const StatePart& part, const PlacedParameter& parameter) {
  const TensorBytes bytes = checked_bytes(part.values, part.state + " of " + part.parameter);
  const TensorKey key{part.parameter, part.state};
  if (part.shape.empty()) {  // one number for all of the parameter
    boxes.push_back({.key = key, .dtype = bytes.dtype, .shape = {}, .data = bytes.data});
    return;
  }
  auto* data = static_cast<std::byte*>(bytes.data);
  const auto placed = boxes_in_tensor(parameter.layout);
  for (const TensorBox& run :
       boxes_of_run(shape_of(parameter.tensor), std::uint64_t(part.begin), std::uint64_t(bytes.count))) {
    for (const PlacedBox& piece : placed)
      if (auto box = saved_box(run, data, piece, parameter.layout, key, bytes.dtype)) boxes.push_back(std::move(*box));
    data += run.elements() * size_of(bytes.dtype);
  }
}

constexpr const char* kFinetunedFrom = "finetuned_from";

// However it is written.
std::string whole_path(const std::string& path) {
  std::error_code unknown;
  const auto whole = std::filesystem::weakly_canonical(std::filesystem::absolute(path, unknown), unknown);
  return (whole.has_filename() ? whole : whole.parent_path()).string();
}

std::vector<SavedBox> state_boxes(WeightsStep& weights) {
  std::map<std::string, const PlacedParameter*> parameters;
  for (const auto& parameter : weights.parameters()) parameters.emplace(parameter.name, &parameter);
  std::vector<SavedBox> boxes;
  for (const StatePart& part : weights.own_state()) append_state(boxes, part, *parameters.at(part.parameter));
  return boxes;
}

Status read_boxes(const CheckpointReader& saved, const std::vector<SavedBox>& boxes) {
  for (const SavedBox& box : boxes)
    TUTTI_TRY(
        saved.read(box.key, box.shape.empty() ? TensorBox{} : box.box, const_cast<void*>(box.data), box.row_stride));
  return {};
}

CheckpointValues layout_of(const Parallel& groups, const Options& options) {
  return {
      {"ranks", std::int64_t(groups.world.size())},       {"tensor", std::int64_t(groups.tensor.size())},
      {"pipeline", std::int64_t(groups.pipeline.size())}, {"context", std::int64_t(groups.context.size())},
      {"data", std::int64_t(groups.data.size())},         {"micro_batch", std::int64_t(options.batches.micro_batch)}};
}

void tell_changes(const CheckpointReader& saved, const CheckpointValues& now, const Options& options) {
  const auto words = [](const CheckpointValues& layout) {
    const auto number = [&](const char* name) { return whole_number(layout, name).value_or(0); };
    return fmt::format("tp={} x cp={} x dp={} x pp={} (micro batch {})", number("tensor"), number("context"),
                       number("data"), number("pipeline"), number("micro_batch"));
  };
  if (saved.facts().layout != now)
    log::info(fmt::format("saved by {}, goes on with {}", words(saved.facts().layout), words(now)));
  if (options.skip_train) return;  // no more of the data is taken
  for (const std::string& change : changes_of_data(saved, options)) log::warn(change);
}

}  // namespace

bool was_finetuned_from(const std::string& folder, const std::string& load) {
  if (folder.empty()) return false;
  const auto saved = CheckpointReader::open(folder, VerifyLevel::kFiles);
  if (!saved.ok()) return false;
  const auto& data = saved->facts().data;
  const auto found = data.find(kFinetunedFrom);
  const auto* const source = found == data.end() ? nullptr : std::get_if<std::string>(&found->second);
  return source && *source == whole_path(load);
}

std::vector<SavedBox> TrainingState::boxes() const {
  auto boxes = saved_boxes(weights_.parameters());
  if (!options_.save_optimizer) return boxes;
  for (auto& box : state_boxes(weights_)) boxes.push_back(std::move(box));
  return boxes;
}

CheckpointFacts TrainingState::facts(const Progress& progress) const {
  CheckpointFacts facts{.step = progress.step};
  facts.data = data_values(options_);
  facts.data["consumed_samples"] = progress.consumed;
  facts.data["seed"] = std::int64_t(options_.model.seed);
  if (options_.weights_only) facts.data[kFinetunedFrom] = whole_path(options_.load);
  if (progress.left_out > 0) facts.data["left_out_samples"] = progress.left_out;
  if (const auto& scale = progress.loss_scale) {
    facts.data["loss_scale"] = scale->scale;
    facts.data["loss_scale_good_steps"] = scale->good_steps;
    facts.data["loss_scale_patience"] = scale->patience;
  }
  facts.values = config_values(options_.model);
  facts.values["optimizer"] = std::string(name(weights_.rule()));
  facts.layout = layout_of(groups_, options_);
  return facts;
}

namespace {

std::optional<LossScale::State> saved_loss_scale(const CheckpointValues& data) {
  const auto scale = real_number(data, "loss_scale");
  if (!scale) return {};
  return LossScale::State{.scale = *scale,
                          .good_steps = whole_number(data, "loss_scale_good_steps").value_or(0),
                          .patience = whole_number(data, "loss_scale_patience").value_or(0)};
}

}  // namespace

Result<Progress> TrainingState::load(const CheckpointReader& saved, bool weights_only) const {
  const bool with_optimizer = options_.load_optimizer && !weights_only;
  TUTTI_TRY(check_same_model(saved, options_.model, with_optimizer ? &weights_.rule() : nullptr));
  if (!weights_only) TUTTI_TRY(check_same_seed(saved, options_));
  const std::int64_t consumed = weights_only ? 0 : TUTTI_TRY(place_in_data(saved, "consumed_samples"));
  TUTTI_TRY(read_parameters(saved, weights_.parameters()));
  if (with_optimizer) {
    TUTTI_TRY(read_boxes(saved, state_boxes(weights_)));
    TUTTI_TRY(check_steps(saved, weights_.own_state()));
  }
  if (weights_only) return Progress();
  if (groups_.world.rank() == 0) tell_changes(saved, layout_of(groups_, options_), options_);
  const auto& data = saved.facts().data;
  return Progress{.step = saved.facts().step,
                  .consumed = consumed,
                  .left_out = whole_number(data, "left_out_samples").value_or(0),
                  .loss_scale = saved_loss_scale(data)};
}

}  // namespace tutti::gpt
