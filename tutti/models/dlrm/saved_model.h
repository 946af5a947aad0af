#pragma once
// A model on disk: a checkpoint folder (docs/reference/formats.md) that any number of ranks, however their tables are
// placed, can load. Names are those of Python's state_dict(): "emb_l.0.weight", "bot_l.0.bias".
#include <cstdint>
#include <string>

#include "tutti/checkpoint/io/reader.h"
#include "tutti/checkpoint/state.h"
#include "tutti/comm/group.h"
#include "tutti/models/dlrm/model.h"

namespace tutti::dlrm {

// Where a training stood.
struct SavedState {
  std::int64_t epoch = 0, batch = 0, steps = 0;  // whole epochs, batches of the next one, steps of the optimizer so far
  std::int64_t epochs = 0, batches = 0, test_batches = 0;  // as asked for
  std::int64_t batch_size = 0;
  double train_loss = 0;  // as printed last
  double loss_sum = 0;    // since then, of all ranks
  std::int64_t loss_batches = 0, loss_samples = 0;
  double test_accuracy = 0, best_accuracy = 0, best_auc = 0;
};

// What this rank has of the model, in a checkpoint; load_model() reads it. The model has to stay.
void add_boxes(StateDict& state, Model& model);
CheckpointFacts facts_of(const Group& world, const Model& model, const SavedState& state);
// Collective. Replaces what the folder held before, once everything is on disk.
Status save_model(const Group& world, const std::string& folder, Model& model, const SavedState& state);
// The architecture of the model in a folder. kNotFound, kCorrupt: as the reader says; kUnsupported: it was not saved by
// save_model().
Result<Architecture> saved_architecture(const std::string& folder);
// Weights, and with `training` what the optimizer keeps. Collective. kMismatch or what the reader says if the
// checkpoint is of another model.
Result<SavedState> load_model(const CheckpointReader& saved, Model& model, bool training);
Result<SavedState> load_model(const Group& world, const std::string& folder, Model& model, bool training);

}  // namespace tutti::dlrm
