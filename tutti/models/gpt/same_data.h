#pragma once
// Whether a checkpoint continues the data that the options describe. No LibTorch here.
#include <string>
#include <vector>

#include "tutti/checkpoint/io/reader.h"
#include "tutti/models/gpt/options.h"

namespace tutti::gpt {

// Where in the data a run is, beside its seed and its samples: CheckpointFacts::data of a checkpoint.
CheckpointValues data_values(const Options& options);

// A sentence for each of them that differs from the checkpoint: the number of samples so far then no longer says what
// has been learned from. Megatron-LM resumes in silence; it may well be meant (longer sequences later). None where the
// checkpoint does not say.
std::vector<std::string> changes_of_data(const CheckpointReader& saved, const Options& options);

// kMismatch: samples and dropout of the run that saved it depend on another seed.
Status check_same_seed(const CheckpointReader& saved, const Options& options);

}  // namespace tutti::gpt
