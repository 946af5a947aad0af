#pragma once
// Is a checkpoint of the model that a config describes? The config's values in the checkpoint, the names and the shapes
// of its tensors show it, of the whole model: all ranks come to the same answer. No LibTorch here.
#include "tutti/checkpoint/io/reader.h"
#include "tutti/parallel/optim/update_rule.h"
#include "tutti/planning/transformer_config.h"

namespace tutti {

// The fields of a config that the shapes of tensors do not show: CheckpointFacts::values of a checkpoint.
CheckpointValues config_values(const TransformerConfig& config);

// kMismatch, with a sentence that names the field and both values, or some tensors: the checkpoint was saved with
// another config; it lacks weights, has them in other shapes or types, or has more of them, which would be lost in
// silence. Also compares the state that an optimizer keeps by `rule`; null: the state is not loaded and not compared.
// Reads no tensor.
Status check_same_model(const CheckpointReader& saved, const TransformerConfig& config, const UpdateRule* rule);

}  // namespace tutti
