#include "tutti/models/gpt/training_state.h"

#include <fmt/format.h>

#include <filesystem>

#include "tutti/base/log.h"
#include "tutti/checkpoint/io/reader.h"
#include "tutti/models/gpt/same_data.h"
#include "tutti/models/transformer/same_model.h"

namespace tutti::gpt {
namespace {

constexpr const char* kFinetunedFrom = "finetuned_from";

// However it is written.
std::string whole_path(const std::string& path) {
  std::error_code unknown;
  const auto whole = std::filesystem::weakly_canonical(std::filesystem::absolute(path, unknown), unknown);
  return (whole.has_filename() ? whole : whole.parent_path()).string();
}

CheckpointValues layout_of(const Parallel& groups, const Options& options) {
  return {
      {"ranks", std::int64_t(groups.world.size())},       {"tensor", std::int64_t(groups.tensor.size())},
      {"pipeline", std::int64_t(groups.pipeline.size())}, {"context", std::int64_t(groups.context.size())},
      {"data", std::int64_t(groups.data.size())},         {"micro_batch", std::int64_t(options.batches.micro_batch)}};
}

void log_changes(const CheckpointReader& saved, const CheckpointValues& now, const Options& options) {
  const auto words = [](const CheckpointValues& layout) {
    const auto number = [&](const char* name) { return whole_number(layout, name).value_or(0); };
    return fmt::format("tp={} x cp={} x dp={} x pp={} (micro batch {})", number("tensor"), number("context"),
                       number("data"), number("pipeline"), number("micro_batch"));
  };
  if (saved.facts().layout != now)
    log::info(fmt::format("saved by {}, resuming with {}", words(saved.facts().layout), words(now)));
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

namespace {

void add_facts(CheckpointFacts& facts, const Progress& progress, const Options& options) {
  facts.data.merge(data_values(options));
  facts.data["seed"] = std::int64_t(options.model.seed);
  if (options.weights_only) facts.data[kFinetunedFrom] = whole_path(options.load);
  if (progress.skipped > 0) facts.data["left_out_samples"] = progress.skipped;
  if (const auto& scale = progress.loss_scale) {
    facts.data["loss_scale"] = scale->scale;
    facts.data["loss_scale_good_steps"] = scale->good_steps;
    facts.data["loss_scale_patience"] = scale->patience;
  }
  facts.values.merge(config_values(options.model));
}

std::optional<LossScale::State> saved_loss_scale(const CheckpointValues& data) {
  const auto scale = real_number(data, "loss_scale");
  if (!scale) return {};
  return LossScale::State{.scale = *scale,
                          .good_steps = whole_number(data, "loss_scale_good_steps").value_or(0),
                          .patience = whole_number(data, "loss_scale_patience").value_or(0)};
}

}  // namespace

void TrainingState::state(StateDict& dict, Progress& progress) const {
  const bool with_optimizer =
      dict.loading() ? options_.load_optimizer && !dict.weights_only() : options_.save_optimizer;
  if (auto* const sharded = weights_.fully_sharded())
    add_state(dict, sharded->own_state(), weights_.parameters());
  else
    dict.add("model", weights_.parameters());
  if (with_optimizer) add_state(dict, weights_.own_state(), weights_.parameters());
  dict.data("consumed_samples", progress.consumed);
  if (!dict.loading()) {
    add_facts(dict.facts(), progress, options_);
    dict.facts().values["optimizer"] = std::string(name(weights_.rule()));
    dict.facts().layout = layout_of(groups_, options_);
    return;
  }
  dict.allow_other_tensors();  // check_same_model() rejects those that matter
  dict.check([this, with_optimizer, weights_only = dict.weights_only()](const CheckpointReader& saved) -> Status {
    TUTTI_TRY(check_same_model(saved, options_.model, with_optimizer ? &weights_.rule() : nullptr));
    return weights_only ? Status() : check_same_seed(saved, options_);
  });
  if (dict.weights_only()) return;
  dict.after_load([this, &progress](const CheckpointReader& saved) {
    if (groups_.world.rank() == 0) log_changes(saved, layout_of(groups_, options_), options_);
    progress.step = saved.facts().step;
    progress.skipped = whole_number(saved.facts().data, "left_out_samples").value_or(0);
    progress.loss_scale = saved_loss_scale(saved.facts().data);
    return Status();
  });
}

}  // namespace tutti::gpt
