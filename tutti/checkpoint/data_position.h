#pragma once
// Where the data goes on, as a checkpoint says it by name: for the programs of this repository, and for who makes a
// checkpoint that they are to go on from.
#include <cstdint>
#include <optional>
#include <string>

#include "tutti/checkpoint/io/reader.h"

namespace tutti {

// CheckpointFacts::data[name]. What is not there, or is no whole number from `least` on, must not mean the beginning:
// the samples that were passed would be trained on again. So that is kInvalidArgument, which tells a mistyped name.
Result<std::int64_t> place_in_data(const CheckpointReader& saved, const std::string& name, std::int64_t least = 0);

// The name that train_image, train_dlrm or pretrain_gpt reads for which this one may have been mistyped; none: it is
// one of them, or near to none.
std::optional<std::string> meant_data_name(const std::string& given);

}  // namespace tutti
