#pragma once
// What an image classifier's training is at a step, as a checkpoint: enough to go on bit for bit with as many ranks.
#include <cstdint>
#include <vector>

#include "tutti/checkpoint/io/reader.h"
#include "tutti/checkpoint/io/writer.h"
#include "tutti/models/image/train.h"
#include "tutti/models/image/weights_step.h"
#include "tutti/parallel/data_parallel/hooks/power_sgd.h"

namespace tutti {

// Random numbers need no place of their own: those of a step hang on its number, the rank and the pass.
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
  ImageTrainingState(const Group& world, ImageModel& model, WeightsStep& weights, PowerSgd* power_sgd,
                     const ImageTrainingOptions& options, std::size_t samples)
      : world_(world), model_(model), weights_(weights), power_sgd_(power_sgd), options_(options), samples_(samples) {}

  // Of this rank, between two steps.
  std::vector<SavedBox> boxes() const;
  // What load() is going to read, as far as that can be said before the checkpoint is known.
  std::vector<SavedBox> wanted_boxes() const;
  CheckpointFacts facts(const ImageProgress& progress) const;
  // kMismatch: it is of another model, optimizer, seed or dataset, by name. Says where the ranks differ in number: then
  // the run goes on as one of this many would.
  Result<ImageProgress> load(const CheckpointReader& saved) const;

 private:
  const Group& world_;
  ImageModel& model_;
  WeightsStep& weights_;
  PowerSgd* const power_sgd_;
  const ImageTrainingOptions& options_;
  const std::size_t samples_;
};

}  // namespace tutti
