#pragma once
// The state of an image classifier's training in a checkpoint: on as many ranks a resumed run has the same bits.
#include <cstddef>
#include <cstdint>

#include "tutti/checkpoint/state.h"
#include "tutti/models/image/replica_step.h"
#include "tutti/models/image/train.h"
#include "tutti/parallel/data_parallel/hooks/power_sgd.h"

namespace tutti {

// Random numbers need no state: those of a step depend on its number, the rank and the pass.
struct ImageProgress {
  std::int64_t steps = 0;        // so far
  std::int64_t epoch = 0;        // under way
  std::int64_t epoch_steps = 0;  // of it, by however many ranks each was made; -1: not known
  std::uint64_t position = 0;    // samples of it that all ranks together have passed
};

class ImageTrainingState {
 public:
  // `power_sgd`: what compresses the gradients; null: another does, or none. `samples`: of the training set. The
  // objects have to stay.
  ImageTrainingState(const Group& world, ImageModel& model, ReplicaStep& weights, PowerSgd* power_sgd,
                     const ImageTrainingOptions& options, std::size_t samples)
      : world_(world), model_(model), weights_(weights), power_sgd_(power_sgd), options_(options), samples_(samples) {}

  // Between two steps. A load rejects a checkpoint of another model, optimizer, seed or dataset by name, and reports
  // where the number of ranks differs: then the run resumes as one of this many ranks would.
  void state(StateDict& dict, ImageProgress& progress) const;

 private:
  const Group& world_;
  ImageModel& model_;
  ReplicaStep& weights_;
  PowerSgd* const power_sgd_;
  const ImageTrainingOptions& options_;
  const std::size_t samples_;
};

}  // namespace tutti
