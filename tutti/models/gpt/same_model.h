#pragma once
// Is a checkpoint of the model that the options describe? Its names, shapes and facts say so, of the whole model:
// whatever this rank has of it, all ranks come to the same answer. No LibTorch here.
#include <string>
#include <vector>

#include "tutti/checkpoint/io/reader.h"
#include "tutti/models/gpt/options.h"
#include "tutti/parallel/optim/update_rule.h"

namespace tutti::gpt {

// What of a model the shapes of its tensors do not show, or not in a word: CheckpointFacts::values of a checkpoint.
CheckpointValues model_facts(const GptShape& shape);

// kMismatch, which names options and some tensors: the checkpoint was saved with other facts; it lacks weights, has
// them in other shapes or types, or has more of them, which would be left behind in silence. The same of what the
// optimizer keeps by `rule`; null: that is not loaded, and what there is of it does not count. Reads no tensor.
Status check_same_model(const CheckpointReader& saved, const Options& options, const UpdateRule* rule);

// Where in the data a run stands, beside its seed and its samples: CheckpointFacts::data of a checkpoint.
CheckpointValues data_facts(const Options& options);

// A sentence for each of them that is not as it was saved: the number of samples behind then no longer says what has
// been learned from. Megatron-LM goes on in silence; it may well be meant (longer sequences later). None where the
// checkpoint does not say.
std::vector<std::string> changes_of_data(const CheckpointReader& saved, const Options& options);

// kMismatch: samples and dropout of the run that saved it hang on another seed.
Status check_same_seed(const CheckpointReader& saved, const Options& options);

}  // namespace tutti::gpt
