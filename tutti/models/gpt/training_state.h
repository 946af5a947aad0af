#pragma once
// The state of a pre-training in a checkpoint of whole tensors: any grid resumes from any other.
#include <cstdint>
#include <optional>
#include <string>

#include "tutti/checkpoint/state.h"
#include "tutti/models/gpt/grid_step.h"
#include "tutti/models/gpt/options.h"
#include "tutti/models/transformer/parallel.h"

namespace tutti::gpt {

// Random numbers and schedules need no state of their own: they depend on these.
struct Progress {
  std::int64_t step = 0;
  std::int64_t consumed = 0;  // samples of training, over all replicas
  std::int64_t skipped = 0;   // of these, in steps that were skipped: they count in no schedule
  std::optional<LossScale::State> loss_scale;
};

// Whether the newest checkpoint in `folder` is of a run that began with the weights of `load` (--finetune).
bool was_finetuned_from(const std::string& folder, const std::string& load);

class TrainingState {
 public:
  // The objects have to stay.
  TrainingState(const Parallel& groups, GridStep& weights, const Options& options)
      : groups_(groups), weights_(weights), options_(options) {}

  // Between two steps. A load rejects a checkpoint of another model, optimizer or seed by name, and reports where the
  // grid differs. Of weights alone it leaves `progress` at step 0.
  void state(StateDict& dict, Progress& progress) const;

 private:
  const Parallel& groups_;
  GridStep& weights_;
  const Options& options_;
};

}  // namespace tutti::gpt
