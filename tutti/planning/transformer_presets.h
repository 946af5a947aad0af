#pragma once
// Configs of published models, by name. sequence_length is the longest that the model was trained for; a smaller one
// may be set. Dropout and precision are those of a new TransformerConfig.
//
//   tutti::TransformerConfig config = tutti::transformer_preset("llama3-8b").or_throw();
//   config.sequence_length = 2048;
#include <string_view>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/planning/transformer_config.h"

namespace tutti {

// "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl" (Radford et al. 2019); "gpt3-175b" (Brown et al. 2020); "llama2-7b",
// "llama3-8b", "llama3-70b", "llama3-405b" (Touvron et al. 2023, Meta 2024); "mistral-7b" (v0.2, which has no sliding
// window); "qwen2.5-0.5b", "qwen2.5-7b" (2024). kInvalidArgument for another name, with the names that there are.
Result<TransformerConfig> transformer_preset(std::string_view name);
std::vector<std::string_view> transformer_preset_names();

}  // namespace tutti
