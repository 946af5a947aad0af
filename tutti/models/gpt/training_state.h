#pragma once
// What a pre-training is at a step, as a checkpoint of whole tensors: any grid goes on from any other.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/checkpoint/io/reader.h"
#include "tutti/checkpoint/io/writer.h"
#include "tutti/models/gpt/grid_groups.h"
#include "tutti/models/gpt/options.h"
#include "tutti/models/gpt/weights_step.h"

namespace tutti::gpt {

// Random numbers and schedules need no place of their own: they hang on these.
struct Progress {
  std::int64_t step = 0;
  std::int64_t consumed = 0;  // samples of training, over all replicas
  std::int64_t left_out = 0;  // of these, in steps that were left out: they count in no schedule
  std::optional<LossScale::State> loss_scale;
};

// Whether the newest checkpoint in `folder` is of a run that began with the weights of `load` (--finetune).
bool was_finetuned_from(const std::string& folder, const std::string& load);

class TrainingState {
 public:
  // The objects have to stay.
  TrainingState(const GridGroups& groups, WeightsStep& weights, const Options& options)
      : groups_(groups), weights_(weights), options_(options) {}

  std::vector<SavedBox> boxes() const;  // of this rank
  CheckpointFacts facts(const Progress& progress) const;
  // `weights_only`: the rest begins anew, at step 0. kMismatch: it is of another model, optimizer or seed, by name.
  // Says where the grid differs.
  Result<Progress> load(const CheckpointReader& saved, bool weights_only) const;

 private:
  const GridGroups& groups_;
  WeightsStep& weights_;
  const Options& options_;
};

}  // namespace tutti::gpt
