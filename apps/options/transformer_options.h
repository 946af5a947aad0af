#pragma once
// The options of a transformer's sizes and dropout, with Megatron-LM's names, which pretrain_gpt and `tutti plan
// train` share.
#include <cstdint>
#include <vector>

#include "apps/options/option.h"
#include "tutti/planning/transformer_config.h"

namespace tutti::cli {

inline constexpr std::int64_t kMostSize = std::numeric_limits<int>::max() / 8;

// The table sets `config`. set_transformer_shape() fills in what follows from several options.
std::vector<Option> transformer_options(TransformerConfig& config);
// Sizes that were not given, and the activation. Fails as check(config) does.
Status set_transformer_shape(TransformerConfig& config, const OptionTexts& texts);

}  // namespace tutti::cli
